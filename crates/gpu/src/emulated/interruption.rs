//! What stops a kernel from outside of its calls: the end of its time, a trap, an address that is none.
//!
//! Signals arrive on the system thread that runs the launch. Inside of kernel code nothing of the runtime is
//! borrowed, so the handler sends the thread, which never runs again, to a function that records the fault
//! and leaves the fiber. Signals that hit anything else are handed on to whoever handled them before.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::OnceLock;
use std::time::Duration;

use super::launch::{self, Launch, Stop};
use super::module::Entry;
use super::watchdog::{self, OUT_OF_TIME, Watch};
use crate::types::FaultKind;

/// Signals that an instruction raises.
const RAISED: [c_int; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP];
/// Signals after which a launch ends even inside of the header's own functions, whose lines tell little.
const PATIENCE: u32 = 2000;

/// What stopped a kernel, and where.
#[derive(Debug, Clone, Copy)]
struct Interruption {
    signal: c_int,
    counter: usize,
    /// The address that a signal of an instruction speaks of.
    address: usize,
}

/// What the handler may know of the launch that its system thread runs.
#[derive(Clone)]
struct Watched {
    /// Code of the kernel, and of that the header's own hooks.
    image: Range<usize>,
    hooks: Range<usize>,
    /// Processor time of the system thread at which the launch is out of time.
    deadline: u64,
    limit: Duration,
}

thread_local! {
    static WATCHED: Cell<Option<&'static Watched>> = const { Cell::new(None) };
    static OVERDUE: Cell<bool> = const { Cell::new(false) };
    static SIGNALS: Cell<u32> = const { Cell::new(0) };
    static PENDING: Cell<Option<Interruption>> = const { Cell::new(None) };
}

/// While it lives, a kernel on this system thread is stopped after its time, and by what would end the
/// process.
pub(super) struct Guard {
    watched: *mut Watched,
    outer: Option<&'static Watched>,
    _watch: Watch,
}

impl Guard {
    /// Watches a launch on the running system thread for `limit` of its processor time.
    pub(super) fn new(entry: &Entry, limit: Duration) -> Self {
        install();
        let deadline =
            watchdog::processor_time().saturating_add(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
        let watched = Watched { image: entry.image().clone(), hooks: entry.hooks().clone(), deadline, limit };
        let watched = Box::into_raw(Box::new(watched));
        OVERDUE.set(false);
        SIGNALS.set(0);
        // SAFETY: the box is freed by `drop`, after nobody finds it any more.
        let outer = WATCHED.replace(Some(unsafe { &*watched }));
        Self { watched, outer, _watch: Watch::new(deadline) }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        WATCHED.set(self.outer);
        OVERDUE.set(false);
        // SAFETY: the handler, which runs on this thread, finds the outer one from here on.
        drop(unsafe { Box::from_raw(self.watched) });
    }
}

/// Whether the launch on this system thread is out of time.
pub(super) fn is_overdue() -> bool {
    OVERDUE.get()
}

impl Launch {
    /// The fault of a launch that is out of time.
    pub(super) fn out_of_time(&mut self, site: Option<crate::types::Site>) -> Stop {
        let seconds = WATCHED.get().map_or(0.0, |watched| watched.limit.as_secs_f64());
        let message = format!(
            "the launch runs for more than {seconds} s, and this thread is in a loop here: one that does not end, or \
             GATEWORK_EMULATOR_SECONDS is too low"
        );
        self.fault(FaultKind::TimeLimit, None, site, message)
    }

    fn interrupted(&mut self, by: Interruption) -> Stop {
        // The line table is asked for the call that returns to a place: here it is the instruction itself.
        let site = self.line_at(by.counter + 1);
        let address = Some(by.address);
        match by.signal {
            OUT_OF_TIME => self.out_of_time(site),
            libc::SIGFPE => {
                let message = "an integer division without a result: the smallest integer by -1".into();
                self.fault(FaultKind::OutOfRange, None, site, message)
            }
            libc::SIGILL | libc::SIGTRAP => {
                self.fault(FaultKind::Trap, None, site, "the kernel executes a trap".into())
            }
            _ if site.is_none() => {
                let message = format!(
                    "the thread jumps to {:#x}, which is no code: a wild pointer wrote over its own stack",
                    by.counter
                );
                self.fault(FaultKind::OutOfBounds, address, None, message)
            }
            _ => {
                let message = format!("touches {:#x}, which is no memory", by.address);
                self.fault(FaultKind::OutOfBounds, address, site, message)
            }
        }
    }
}

/// Where a thread goes on that was interrupted: nowhere.
extern "C" fn leave() -> ! {
    if let Some(interruption) = PENDING.take() {
        launch::step(|launch| Err(launch.interrupted(interruption)));
    }
    unreachable!("a thread that faulted never runs again")
}

/// The handlers that were there before ours.
static FORMER: OnceLock<Vec<(c_int, libc::sigaction)>> = OnceLock::new();

fn install() {
    FORMER.get_or_init(|| {
        RAISED.iter().chain(&[OUT_OF_TIME]).map(|&signal| (signal, replace(signal))).collect()
    });
}

fn replace(signal: c_int) -> libc::sigaction {
    // SAFETY: both structs are plain data for which zeros are valid; the handler is a function of the right
    // type, which touches nothing but the thread's own state and, in kernel code, its launch.
    unsafe {
        let mut former: libc::sigaction = std::mem::zeroed();
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handle as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        libc::sigaction(signal, &raw const action, &raw mut former);
        former
    }
}

extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the system passes a context and, for signals of instructions, an address.
    let (place, address) = unsafe { (&mut *context.cast::<libc::ucontext_t>(), (*info).si_addr() as usize) };
    let counter = *counter_of(place);
    let watched = WATCHED.get();
    let in_kernel = watched.is_some_and(|watched| watched.image.contains(&counter));
    let is_lost = watched.is_some() && signal == libc::SIGSEGV && address == counter;
    if signal != OUT_OF_TIME {
        if in_kernel || is_lost {
            return send_away(place, Interruption { signal, counter, address });
        }
        return hand_on(signal, info, context);
    }
    let Some(watched) = watched.filter(|watched| watchdog::processor_time() >= watched.deadline) else {
        return hand_on(signal, info, context);
    };
    OVERDUE.set(true);
    SIGNALS.set(SIGNALS.get() + 1);
    let is_of_kernel = |at: &usize| watched.image.contains(at) && !watched.hooks.contains(at);
    // Hooks end in a jump to the runtime, so that where they return to is mostly at hand.
    let returns_to = watched.hooks.contains(&counter).then(|| return_address(place)).filter(is_of_kernel);
    let found = Some(counter).filter(is_of_kernel).or_else(|| returns_to.map(|at| at - 1));
    let found = found.or_else(|| Some(counter).filter(|_| in_kernel && SIGNALS.get() > PATIENCE));
    if let Some(counter) = found {
        send_away(place, Interruption { signal, counter, address: 0 });
    }
}

/// Lets the thread go on in [`leave`], on its own stack, of which nothing is needed any more.
fn send_away(place: &mut libc::ucontext_t, interruption: Interruption) {
    PENDING.set(Some(interruption));
    let top = launch::stack_top() & !15;
    *counter_of(place) = leave as *const () as usize;
    set_stack(place, top);
}

/// To the handler that was there before, or to the end that the signal has by default.
fn hand_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let former =
        FORMER.get().and_then(|all| all.iter().find(|(of, _)| *of == signal)).map(|(_, former)| former);
    let (handler, flags) = former.map_or((libc::SIG_DFL, 0), |former| (former.sa_sigaction, former.sa_flags));
    if handler == libc::SIG_IGN || (handler == libc::SIG_DFL && signal == OUT_OF_TIME) {
        return;
    }
    // SAFETY: the handler was installed by somebody for this signal, with the type that its flags say. By
    // default the instruction runs once more and ends the process, as it would without us.
    unsafe {
        if handler == libc::SIG_DFL {
            let mut default: libc::sigaction = std::mem::zeroed();
            default.sa_sigaction = libc::SIG_DFL;
            libc::sigaction(signal, &raw const default, std::ptr::null_mut());
        } else if flags & libc::SA_SIGINFO != 0 {
            let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                std::mem::transmute(handler);
            handler(signal, info, context);
        } else {
            let handler: extern "C" fn(c_int) = std::mem::transmute(handler);
            handler(signal);
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn counter_of(place: &mut libc::ucontext_t) -> &mut usize {
    // SAFETY: a register of 64 bits, whose sign means nothing here.
    unsafe { &mut *(&raw mut place.uc_mcontext.gregs[libc::REG_RIP as usize]).cast::<usize>() }
}

/// As after a call, which leaves the stack 8 bytes from a multiple of 16.
#[cfg(target_arch = "x86_64")]
fn set_stack(place: &mut libc::ucontext_t, top: usize) {
    place.uc_mcontext.gregs[libc::REG_RSP as usize] = (top - 8) as i64;
}

/// Where a function returns to that has put nothing on the stack.
#[cfg(target_arch = "x86_64")]
fn return_address(place: &libc::ucontext_t) -> usize {
    let stack = place.uc_mcontext.gregs[libc::REG_RSP as usize] as usize as *const usize;
    // SAFETY: code of the kernel runs on the stack of its fiber, where there is a word.
    unsafe { stack.read() }
}

#[cfg(target_arch = "aarch64")]
fn return_address(place: &libc::ucontext_t) -> usize {
    place.uc_mcontext.regs[30] as usize
}

#[cfg(target_arch = "aarch64")]
fn counter_of(place: &mut libc::ucontext_t) -> &mut usize {
    // SAFETY: a register of 64 bits.
    unsafe { &mut *(&raw mut place.uc_mcontext.pc).cast::<usize>() }
}

#[cfg(target_arch = "aarch64")]
fn set_stack(place: &mut libc::ucontext_t, top: usize) {
    place.uc_mcontext.sp = top as u64;
}
