//! Where a task leaves what it wants opened, and finds what was.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::backend::{Part, Words};
use crate::formula::Source as _;
use crate::party::Party;
use crate::ring::Ring;

/// Words to open: the sum of both parties' words, or one party's words for the other to see.
pub(crate) struct Request {
    pub(crate) ring: Ring,
    /// This role's words; absent where only the other party sends.
    pub(crate) words: Words,
    /// The only sender, if there is only one.
    pub(crate) from: Option<Party>,
}

impl Request {
    /// This party's words as a part of a message, or of what one is added to.
    pub(crate) fn part(&self, in_message: bool) -> Part {
        Part { words: self.words.handle().cloned(), len: self.words.len(), ring: self.ring, in_message }
    }

    /// Whether `party` sends words.
    pub(crate) fn sent_by(&self, party: Party) -> bool {
        self.from.is_none_or(|sender| sender == party)
    }
}

/// One task's mailbox.
#[derive(Clone, Default)]
pub(crate) struct Mailbox(Rc<RefCell<Boxes>>);

#[derive(Default)]
struct Boxes {
    outgoing: Vec<Request>,
    incoming: BTreeMap<u64, Words>,
    /// Tickets given out.
    tickets: u64,
}

impl Mailbox {
    /// Waits until the request has been opened.
    pub(crate) fn open(&self, request: Request) -> Opening {
        Opening { mailbox: self.clone(), request: Some(request), ticket: 0 }
    }

    /// All that waits to be opened, in order.
    pub(crate) fn take_outgoing(&self) -> Vec<Request> {
        std::mem::take(&mut self.0.borrow_mut().outgoing)
    }

    /// Delivers what the last outgoing requests became, in their order.
    pub(crate) fn deliver(&self, opened: Vec<Words>) {
        let mut boxes = self.0.borrow_mut();
        let first = boxes.tickets - opened.len() as u64;
        for (ticket, words) in (first..).zip(opened) {
            boxes.incoming.insert(ticket, words);
        }
    }
}

/// A request on its way.
pub(crate) struct Opening {
    mailbox: Mailbox,
    request: Option<Request>,
    ticket: u64,
}

impl Future for Opening {
    type Output = Words;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Words> {
        let mailbox = self.mailbox.clone();
        let mut boxes = mailbox.0.borrow_mut();
        if let Some(request) = self.request.take() {
            self.ticket = boxes.tickets;
            boxes.tickets += 1;
            boxes.outgoing.push(request);
            return Poll::Pending;
        }
        boxes.incoming.remove(&self.ticket).map_or(Poll::Pending, Poll::Ready)
    }
}
