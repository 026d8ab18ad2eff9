//! Columns in device memory.

use std::any::Any;
use std::fmt::{self, Debug};
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use gatework_gpu::{Buffer, Locked, Slice, SliceMut, Stream, View as _};
use stwo::core::fields::m31::BaseField;
use stwo::core::fields::qm31::SecureField;
use stwo::core::poly::circle::CircleDomain;
use stwo::prover::backend::Column;
use stwo::prover::secure_column::SecureColumnByCoords;

use crate::Error;
use crate::backend::CudaBackend;
use crate::element::Element;
use crate::error::{OrRaise as _, raise};
use crate::pages::Pages;
use crate::queue::Queue;
use crate::streaming::Streaming;

/// Memory that several columns may lie in.
struct Memory {
    queue: Queue,
    words: Words,
    /// Words that count among the device's columns.
    counted: usize,
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.queue.forget_columns(self.counted);
    }
}

enum Words {
    Device(Buffer<u32>),
    /// Those of one column.
    Host(Pages),
    /// Those of one column, which lies on another device of the context.
    There(DeviceColumn<BaseField>),
}

/// What is yet to be done with the words of a column that is kept on the host, each time that they have been
/// brought.
pub(crate) trait Finish: Send + Sync {
    /// Does it, in place, with columns that this belongs to.
    fn finish(&self, queue: &Queue, columns: &[DeviceColumn<BaseField>]);
}

/// `len` elements in device memory, in the order of the stream of the context they were made in. Or they are
/// away, and are brought when they are used: in page-locked memory of the host
/// ([`Context::set_streaming`](crate::Context::set_streaming)), or on another device of the context
/// ([`Context::over`](crate::Context::over)).
///
/// A column owns its elements alone, though it may share the allocation with others that were made with it.
pub struct DeviceColumn<T> {
    memory: Arc<Memory>,
    /// In words.
    offset: usize,
    len: usize,
    /// Whether the nodes above this layer of a Merkle tree lie before it in the same memory.
    in_tree: bool,
    /// The single element, when the host already knows it: reading needs no synchronisation.
    known: Option<T>,
    /// The columns that this one is interpolated with.
    together: Option<Together>,
    /// Of a column that is kept on the host.
    finish: Option<Arc<dyn Finish>>,
    element: PhantomData<T>,
}

/// A column's place among those that it is interpolated with.
struct Together {
    group: Arc<Group>,
    place: usize,
}

struct Group {
    /// The same memory as the columns'.
    values: Vec<DeviceColumn<BaseField>>,
    interpolated: Locked<Option<Interpolated>>,
}

/// On which domain columns were, and the coefficients that nobody has asked for yet.
type Interpolated = (CircleDomain, Vec<Option<DeviceColumn<BaseField>>>);

/// Columns that are allocated together start at multiples of this many words, as the widest loads want.
pub(crate) const ALIGNMENT: usize = 4;

impl Memory {
    /// Memory of the device, for columns of `T`. Those of M31 count when others are dealt out; trees, which
    /// are the lead's, do not.
    fn of<T: Element>(queue: &Queue, buffer: Buffer<u32>) -> Arc<Self> {
        let counted = if T::WORDS == 1 { buffer.len() } else { 0 };
        queue.count_columns(counted);
        Arc::new(Self { queue: queue.clone(), words: Words::Device(buffer), counted })
    }

    /// What is not in the memory of the queue's device.
    fn away(queue: &Queue, words: Words) -> Arc<Self> {
        Arc::new(Self { queue: queue.clone(), words, counted: 0 })
    }

    /// Refuses what is away: only what brings columns knows of those.
    fn on_device(&self) -> &Buffer<u32> {
        let place = match &self.words {
            Words::Device(buffer) => return buffer,
            Words::Host(_) => "is streamed from the host's memory",
            Words::There(_) => "lies on another device of its context",
        };
        let what = format!(
            "this operation on a column that {place}: bring it to the device with DeviceColumn::to_memory first"
        );
        raise(Error::Unsupported { what })
    }
}

impl<T: Element> DeviceColumn<T> {
    /// Uninitialised columns of the given lengths, in one allocation.
    pub(crate) fn batch(queue: &Queue, lens: impl IntoIterator<Item = usize>) -> Vec<Self> {
        let mut words = 0;
        let places: Vec<_> = lens
            .into_iter()
            .map(|len| {
                let offset = words;
                words += (len * T::WORDS).next_multiple_of(ALIGNMENT);
                (offset, len)
            })
            .collect();
        let memory = Memory::of::<T>(queue, queue.alloc(words));
        places.into_iter().map(|(offset, len)| Self::at_place(memory.clone(), offset, len)).collect()
    }

    fn at_place(memory: Arc<Memory>, offset: usize, len: usize) -> Self {
        let (in_tree, known, together, finish) = (false, None, None, None);
        Self { memory, offset, len, in_tree, known, together, finish, element: PhantomData }
    }

    /// An uninitialised column.
    pub(crate) fn new(queue: &Queue, len: usize) -> Self {
        let buffer = queue.alloc(len * T::WORDS);
        let memory = Memory::of::<T>(queue, buffer);
        Self::at_place(memory, 0, len)
    }

    /// A column with these words.
    pub(crate) fn from_words(queue: &Queue, words: &[u32]) -> Self {
        let buffer = queue.upload(words);
        let memory = Memory::of::<T>(queue, buffer);
        Self::at_place(memory, 0, words.len() / T::WORDS)
    }

    /// A column of one element.
    pub(crate) fn of_one(queue: &Queue, element: T) -> Self {
        let mut words = Vec::new();
        element.write(&mut words);
        Self { known: Some(element), ..Self::from_words(queue, &words) }
    }

    /// The words of the column where they are kept on the host, and what is yet to be done with them.
    pub(crate) fn pages(&self) -> Option<(&Pages, Option<&Arc<dyn Finish>>)> {
        match &self.memory.words {
            Words::Device(_) | Words::There(_) => None,
            Words::Host(pages) => Some((pages, self.finish.as_ref())),
        }
    }

    /// The column on the device that it lies on, where that is another than its queue's.
    pub(crate) fn there(&self) -> Option<&DeviceColumn<BaseField>> {
        match &self.memory.words {
            Words::There(column) => Some(column),
            Words::Device(_) | Words::Host(_) => None,
        }
    }

    /// Whether the column is not in the memory of its queue's device.
    pub(crate) fn is_away(&self) -> bool {
        !matches!(self.memory.words, Words::Device(_))
    }

    /// How this column is streamed, if it is.
    pub(crate) fn streaming(&self) -> Option<Streaming> {
        self.pages().map(|(pages, _)| pages.streaming())
    }

    /// Whether the column is kept on the host.
    pub(crate) fn is_streamed(&self) -> bool {
        self.pages().is_some()
    }

    /// Another handle of the same words: one of the two is only read, or none is.
    pub(crate) fn alias(&self) -> Self {
        let memory = self.memory.clone();
        Self { finish: self.finish.clone(), ..Self::at_place(memory, self.offset, self.len) }
    }

    /// Elements `offset..offset + len` of this column, as a column of its own: the caller gives up its claim
    /// to them.
    pub(crate) fn part(&self, offset: usize, len: usize) -> Self {
        assert!(offset + len <= self.len, "elements {offset}..{} of {}", offset + len, self.len);
        Self::at_place(self.memory.clone(), self.offset + offset * T::WORDS, len)
    }

    pub(crate) fn queue(&self) -> &Queue {
        &self.memory.queue
    }

    /// The words, to read on `queue`.
    pub(crate) fn words(&self, queue: &Queue) -> Slice<'_, u32> {
        queue.require_own(self.queue());
        self.own_words()
    }

    /// Panics past the end.
    fn require_element(&self, index: usize) {
        assert!(index < self.len, "element {index} of a column of {}", self.len);
    }

    fn own_words(&self) -> Slice<'_, u32> {
        self.memory.on_device().view().slice(self.offset..self.offset + self.len * T::WORDS)
    }

    /// The words, to write on the column's own queue. What was computed from the old ones is no longer this
    /// column's tree.
    pub(crate) fn words_mut(&mut self) -> SliceMut<'_, u32> {
        (self.in_tree, self.known, self.together) = (false, None, None);
        // SAFETY: columns of one allocation have disjoint ranges, this one is borrowed to write, and all of a
        // context's work is on one stream.
        unsafe { self.own_words().assume_unshared() }
    }

    /// The address of element 0, for kernels on `queue`.
    pub(crate) fn address(&self, queue: &Queue) -> u64 {
        self.words(queue).as_raw()
    }

    /// Queues a copy of all of `source`, which may lie on another device of the context, after what is queued
    /// there so far.
    pub(crate) fn fetch(&mut self, source: &Self) {
        let (queue, owner) = (self.queue().clone(), source.queue().clone());
        if !owner.is(&queue) {
            queue.stream().wait(&owner.stream().record().or_raise()).or_raise();
        }
        queue.pull(queue.stream(), &owner, &source.own_words(), &mut self.words_mut());
    }

    pub(crate) fn mark_as_tree(&mut self) {
        self.in_tree = true;
    }

    /// The layer of parents of a layer of a Merkle tree whose nodes lie in breadth-first order, root first.
    pub(crate) fn parents(&self) -> Option<Self> {
        let nodes = self.len / 2;
        // The layer of n nodes starts at node n - 1.
        (self.in_tree && nodes > 0).then(|| {
            let parents = Self::at_place(self.memory.clone(), (nodes - 1) * T::WORDS, nodes);
            Self { in_tree: true, ..parents }
        })
    }
}

/// For kernels of one's own; `examples/own_component.rs` has one.
impl<T: Element> DeviceColumn<T> {
    /// The stream of the context that the column was made in. Kernels that use the column are launched there.
    pub fn stream(&self) -> &Stream {
        self.queue().stream()
    }

    /// The column's words in device memory, to read on [`DeviceColumn::stream`]. An element of M31 is one
    /// word below P, one of QM31 is four.
    pub fn view(&self) -> Slice<'_, u32> {
        self.own_words()
    }

    /// The column's words in device memory, to write on [`DeviceColumn::stream`]. Words of field elements
    /// stay below P.
    pub fn view_mut(&mut self) -> SliceMut<'_, u32> {
        self.words_mut()
    }
}

impl DeviceColumn<BaseField> {
    /// A column that is kept on the host.
    pub(crate) fn streamed(queue: &Queue, pages: Pages) -> Self {
        let len = pages.len();
        Self::at_place(Memory::away(queue, Words::Host(pages)), 0, len)
    }

    /// The same, with something yet to be done with the words each time that they have been brought.
    ///
    /// Panics if something else is yet to be done with them, or if they are not on the host.
    pub(crate) fn yet_to(self, finish: Arc<dyn Finish>) -> Self {
        assert!(self.is_streamed() && self.finish.is_none(), "one thing is done with what was brought");
        Self { finish: Some(finish), ..self }
    }

    /// The column where it lies: on its own queue, or on that of another device of the context.
    pub(crate) fn at_home(&self) -> Self {
        self.there().map_or_else(|| self.alias(), Self::alias)
    }

    /// The same column for what `queue` does, which is of the same context: away unless it lies there.
    pub(crate) fn seen_from(&self, queue: &Queue) -> Self {
        let column = self.at_home();
        if column.queue().is(queue) {
            return column;
        }
        assert!(!column.is_streamed(), "columns of the host are brought to the first device alone");
        let len = column.len;
        Self::at_place(Memory::away(queue, Words::There(column)), 0, len)
    }

    /// The column in the memory of its queue's device: itself, or brought for the occasion.
    pub(crate) fn brought(&self) -> Self {
        if let Some(there) = self.there() {
            let mut column = Self::new(self.queue(), self.len);
            column.fetch(there);
            // Whatever is done there next comes after.
            there.queue().stream().wait(&self.queue().stream().record().or_raise()).or_raise();
            return column;
        }
        let Some((pages, finish)) = self.pages() else { return self.alias() };
        let queue = self.queue();
        let mut column = Self::new(queue, self.len);
        pages.load(queue.stream(), 0, &mut column.words_mut());
        if let Some(finish) = finish {
            finish.finish(queue, std::slice::from_ref(&column));
        }
        column
    }

    /// A copy of the column in the memory of the context's device, its first where it has several, also where
    /// the column is away: for operations that read columns by themselves, as kernels of one's own or those
    /// of GKR.
    pub fn to_memory(&self) -> Self {
        if self.is_away() { self.brought() } else { self.clone() }
    }

    /// The values, in the order of the column's own queue.
    pub(crate) fn read_into(&self, target: &mut [u32]) {
        match (self.pages(), self.there()) {
            (Some((pages, None)), _) => pages.read(target),
            (_, Some(there)) => there.read_into(target),
            _ => {
                let words = self.queue().stream().download(&self.brought().own_words()).or_raise();
                target.copy_from_slice(&words);
            }
        }
    }

    /// Says that columns of one length will be interpolated one after the other: the first then takes the
    /// others along, which are so few that a launch for each would do little. A column whose values change
    /// meanwhile is on its own again.
    pub(crate) fn go_together<const N: usize>(columns: &mut [Self; N]) {
        let values = columns.iter().map(|column| column.part(0, column.len)).collect();
        let group = Arc::new(Group { values, interpolated: Locked::default() });
        for (place, column) in columns.iter_mut().enumerate() {
            column.together = Some(Together { group: group.clone(), place });
        }
    }

    /// Before values change that were to be interpolated with others.
    pub(crate) fn go_alone(&mut self) {
        self.together = None;
    }

    /// This column's coefficients on `domain`, if it goes together with others. `interpolate` is given the
    /// values of all of them, and gives the coefficients of all; it is asked once.
    pub(crate) fn interpolated_together(
        &mut self,
        domain: CircleDomain,
        interpolate: impl FnOnce(&[Self]) -> Vec<Self>,
    ) -> Option<Self> {
        let Together { group, place } = self.together.take()?;
        let mut interpolated = group.interpolated.lock();
        let (on, columns) = interpolated.get_or_insert_with(|| {
            let columns = interpolate(&group.values).into_iter().map(Some);
            (domain, columns.collect())
        });
        if *on == domain { columns.get_mut(place)?.take() } else { None }
    }

    /// Whether this lies where a column that is allocated together with `before` starts after it.
    pub(crate) fn follows(&self, before: &Self) -> bool {
        let next = before.offset + before.len.next_multiple_of(ALIGNMENT);
        Arc::ptr_eq(&self.memory, &before.memory) && self.offset == next
    }

    /// Words of the allocation, counted from this column's first: of its own, and of those that follow.
    pub(crate) fn words_after(&self, words: Range<usize>) -> Slice<'_, u32> {
        self.memory.on_device().view().slice(self.offset + words.start..self.offset + words.end)
    }
}

impl<T: Element> DeviceColumn<T> {
    /// This column as one of M31, if it is.
    fn as_base(&self) -> Option<&DeviceColumn<BaseField>> {
        (self as &dyn Any).downcast_ref()
    }

    /// Brings the column to device memory for good: before its elements are changed there.
    pub(crate) fn come_to_stay(&mut self) {
        if !self.is_away() {
            return;
        }
        if let Some(column) = (self as &mut dyn Any).downcast_mut::<DeviceColumn<BaseField>>() {
            *column = column.brought();
        }
    }
}

impl DeviceColumn<SecureField> {
    /// The elements, to read on `queue`.
    pub(crate) fn quads(&self, queue: &Queue) -> Slice<'_, [u32; 4]> {
        self.words(queue).cast()
    }

    /// The elements, to write on the column's own queue.
    pub(crate) fn quads_mut(&mut self) -> SliceMut<'_, [u32; 4]> {
        self.known = None;
        // SAFETY: as in `words_mut`.
        unsafe { self.own_words().cast().assume_unshared() }
    }
}

/// Addresses of columns, for kernels that work on many.
pub(crate) fn table<'a, T: Element>(
    queue: &Queue,
    columns: impl IntoIterator<Item = &'a DeviceColumn<T>>,
) -> Buffer<u64> {
    let addresses: Vec<u64> = columns.into_iter().map(|column| column.address(queue)).collect();
    queue.upload(&addresses)
}

/// The addresses of the four coordinates of a column of QM31, which are of one length.
pub(crate) fn coordinates(queue: &Queue, column: &SecureColumnByCoords<CudaBackend>) -> [u64; 4] {
    let lens = column.columns.each_ref().map(DeviceColumn::len);
    assert!(lens == [lens[0]; 4], "coordinates of {lens:?} elements are of no column");
    column.columns.each_ref().map(|coordinate| coordinate.address(queue))
}

/// An uninitialised column of QM31 by coordinates.
pub(crate) fn secure_column(queue: &Queue, len: usize) -> SecureColumnByCoords<CudaBackend> {
    let columns = DeviceColumn::batch(queue, [len; 4]);
    SecureColumnByCoords { columns: columns.try_into().expect("four columns were asked for") }
}

impl<T: Element> Column<T> for DeviceColumn<T> {
    fn zeros(len: usize) -> Self {
        let mut column = Self::new(&Queue::current(), len);
        column.memory.queue.clone().stream().fill(&mut column.words_mut(), 0).or_raise();
        column
    }

    unsafe fn uninitialized(len: usize) -> Self {
        Self::new(&Queue::current(), len)
    }

    fn to_cpu(&self) -> Vec<T> {
        let words = match self.as_base() {
            Some(column) if column.is_away() => {
                let mut words = vec![0; column.len];
                column.read_into(&mut words);
                words
            }
            _ => self.queue().stream().download(&self.own_words()).or_raise(),
        };
        words.chunks_exact(T::WORDS).map(T::read).collect()
    }

    fn len(&self) -> usize {
        self.len
    }

    fn at(&self, index: usize) -> T {
        self.require_element(index);
        if let (0, Some(element)) = (index, self.known) {
            return element;
        }
        if let (Some((pages, None)), 1) = (self.pages(), T::WORDS) {
            return T::read(&[pages.word(index)]);
        }
        if let Some(there) = self.there() {
            return T::read(&[there.at(index).0]);
        }
        if let Some(column) = self.as_base().filter(|column| column.is_streamed()) {
            return T::read(&[column.brought().at(index).0]);
        }
        let range = index * T::WORDS..(index + 1) * T::WORDS;
        T::read(&self.queue().stream().download(&self.own_words().slice(range)).or_raise())
    }

    fn set(&mut self, index: usize, value: T) {
        self.require_element(index);
        self.come_to_stay();
        let mut words = Vec::with_capacity(T::WORDS);
        value.write(&mut words);
        let queue = self.queue().clone();
        let mut target = self.words_mut();
        let mut target = target.slice_mut(index * T::WORDS..(index + 1) * T::WORDS);
        queue.stream().copy_from_host(&words, &mut target).or_raise();
    }

    fn split_at_mid(mut self) -> (Self, Self) {
        self.come_to_stay();
        let middle = self.len / 2;
        (self.part(0, middle), self.part(middle, self.len - middle))
    }
}

impl<T: Element> Clone for DeviceColumn<T> {
    fn clone(&self) -> Self {
        // What is on the host is never changed there.
        if self.is_streamed() {
            return self.alias();
        }
        if let Some(there) = self.there() {
            let words = Words::There(there.clone());
            return Self::at_place(Memory::away(self.queue(), words), 0, self.len);
        }
        let mut copy = Self::new(self.queue(), self.len);
        self.queue().stream().copy(&self.own_words(), &mut copy.words_mut()).or_raise();
        copy
    }
}

impl<T: Element> Debug for DeviceColumn<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceColumn<{}>[{}]", std::any::type_name::<T>(), self.len)
    }
}

impl<T: Element> FromIterator<T> for DeviceColumn<T> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        let mut words = Vec::new();
        for element in elements {
            element.write(&mut words);
        }
        Self::from_words(&Queue::current(), &words)
    }
}
