//! Columns by the devices that they lie on.

use stwo::core::fields::m31::BaseField;

use crate::column::DeviceColumn;
use crate::queue::Queue;

/// Some of several columns: those that lie on one device, or are brought there from the host.
pub(crate) struct Home {
    pub(crate) queue: Queue,
    /// Their places among all.
    pub(crate) places: Vec<usize>,
    /// For work on the queue.
    pub(crate) columns: Vec<DeviceColumn<BaseField>>,
}

/// All of `columns`, device by device, in the order of each one's first. Refuses those of two contexts.
pub(crate) fn by_home<'a>(columns: impl IntoIterator<Item = &'a DeviceColumn<BaseField>>) -> Vec<Home> {
    let mut homes: Vec<Home> = Vec::new();
    for (place, column) in columns.into_iter().enumerate() {
        let column = column.at_home();
        if let Some(first) = homes.first() {
            first.queue.require_beside(column.queue());
        }
        match homes.iter_mut().find(|home| home.queue.is(column.queue())) {
            Some(home) => {
                home.places.push(place);
                home.columns.push(column);
            }
            None => {
                let queue = column.queue().clone();
                homes.push(Home { queue, places: vec![place], columns: vec![column] });
            }
        }
    }
    homes
}
