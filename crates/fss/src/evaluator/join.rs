//! Several parts of a task side by side, so that their opens share a message.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use crate::error::Result;

/// Runs both. In every phase the first advances before the second, for dealer and parties alike: that is the
/// order of their key material.
pub async fn join<A, B>(
    first: impl Future<Output = Result<A>>,
    second: impl Future<Output = Result<B>>,
) -> Result<(A, B)> {
    let (mut first, mut second) = (pin!(first), pin!(second));
    let (mut first_done, mut second_done) = (None, None);
    poll_fn(|context| {
        if first_done.is_none()
            && let Poll::Ready(output) = first.as_mut().poll(context)
        {
            first_done = Some(output?);
        }
        if second_done.is_none()
            && let Poll::Ready(output) = second.as_mut().poll(context)
        {
            second_done = Some(output?);
        }
        match (first_done.take(), second_done.take()) {
            (Some(first), Some(second)) => Poll::Ready(Ok((first, second))),
            unfinished => {
                (first_done, second_done) = unfinished;
                Poll::Pending
            }
        }
    })
    .await
}

/// Runs all three.
pub async fn join3<A, B, C>(
    first: impl Future<Output = Result<A>>,
    second: impl Future<Output = Result<B>>,
    third: impl Future<Output = Result<C>>,
) -> Result<(A, B, C)> {
    let ((first, second), third) = join(join(first, second), third).await?;
    Ok((first, second, third))
}
