//! What a workload hands back: named, typed tensors.

use half::{bf16, f16};

macro_rules! tensors {
    ($($(#[$doc:meta])* $variant:ident($element:ty, $name:literal, $to_f64:expr),)*) => {
        /// A run of elements of one type. Its shape is the workload's business; the gates see a line.
        #[derive(Debug, Clone, PartialEq)]
        #[non_exhaustive]
        pub enum Tensor {
            $($(#[$doc])* $variant(Vec<$element>),)*
        }

        impl Tensor {
            /// Number of elements.
            pub fn len(&self) -> usize {
                match self { $(Self::$variant(elements) => elements.len(),)* }
            }

            /// The element type's name, as `f32`.
            pub fn type_name(&self) -> &'static str {
                match self { $(Self::$variant(_) => $name,)* }
            }

            /// Element `index` as a number. Panics past the end, as indexing does.
            pub fn number(&self, index: usize) -> f64 {
                match self { $(Self::$variant(elements) => { let to_f64: fn($element) -> f64 = $to_f64; to_f64(elements[index]) })* }
            }

            /// The elements as bytes, in the machine's order.
            pub fn bytes(&self) -> &[u8] {
                match self { $(Self::$variant(elements) => bytemuck::cast_slice(elements),)* }
            }

            /// The elements as bytes, to change.
            pub fn bytes_mut(&mut self) -> &mut [u8] {
                match self { $(Self::$variant(elements) => bytemuck::cast_slice_mut(elements),)* }
            }

            /// Size of one element in bytes.
            pub fn element_bytes(&self) -> usize {
                match self { $(Self::$variant(_) => size_of::<$element>(),)* }
            }
        }

        $(impl From<Vec<$element>> for Tensor {
            fn from(elements: Vec<$element>) -> Self {
                Self::$variant(elements)
            }
        })*
    };
}

tensors! {
    /// Double precision.
    F64(f64, "f64", |x| x),
    /// Single precision.
    F32(f32, "f32", f64::from),
    /// IEEE half precision.
    F16(f16, "f16", f16::to_f64),
    /// Brain floating point.
    Bf16(bf16, "bf16", bf16::to_f64),
    /// Unsigned, 64 bits.
    U64(u64, "u64", |x| x as f64),
    /// Signed, 64 bits.
    I64(i64, "i64", |x| x as f64),
    /// Unsigned, 32 bits.
    U32(u32, "u32", f64::from),
    /// Signed, 32 bits.
    I32(i32, "i32", f64::from),
    /// Bytes.
    U8(u8, "u8", f64::from),
    /// Signed bytes.
    I8(i8, "i8", f64::from),
}

impl Tensor {
    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the elements are floating point.
    pub fn is_float(&self) -> bool {
        matches!(self, Self::F64(_) | Self::F32(_) | Self::F16(_) | Self::Bf16(_))
    }

    /// The bytes of element `index`.
    pub(crate) fn element(&self, index: usize) -> &[u8] {
        let width = self.element_bytes();
        &self.bytes()[index * width..(index + 1) * width]
    }

    /// Adds `delta` to element `index`; integers wrap.
    pub(crate) fn shift(&mut self, index: usize, delta: f64) {
        match self {
            Self::F64(elements) => elements[index] += delta,
            Self::F32(elements) => elements[index] += delta as f32,
            Self::F16(elements) => elements[index] = f16::from_f64(elements[index].to_f64() + delta),
            Self::Bf16(elements) => elements[index] = bf16::from_f64(elements[index].to_f64() + delta),
            Self::U64(elements) => elements[index] = elements[index].wrapping_add_signed(delta as i64),
            Self::I64(elements) => elements[index] = elements[index].wrapping_add(delta as i64),
            Self::U32(elements) => elements[index] = elements[index].wrapping_add_signed(delta as i32),
            Self::I32(elements) => elements[index] = elements[index].wrapping_add(delta as i32),
            Self::U8(elements) => elements[index] = elements[index].wrapping_add_signed(delta as i8),
            Self::I8(elements) => elements[index] = elements[index].wrapping_add(delta as i8),
        }
    }

    /// Makes every element half as large again; integers wrap.
    pub(crate) fn enlarge(&mut self) {
        match self {
            Self::F64(elements) => elements.iter_mut().for_each(|x| *x *= 1.5),
            Self::F32(elements) => elements.iter_mut().for_each(|x| *x *= 1.5),
            Self::F16(elements) => elements.iter_mut().for_each(|x| *x = f16::from_f64(1.5 * x.to_f64())),
            Self::Bf16(elements) => elements.iter_mut().for_each(|x| *x = bf16::from_f64(1.5 * x.to_f64())),
            Self::U64(elements) => elements.iter_mut().for_each(|x| *x = x.wrapping_add(*x / 2)),
            Self::I64(elements) => elements.iter_mut().for_each(|x| *x = x.wrapping_add(*x / 2)),
            Self::U32(elements) => elements.iter_mut().for_each(|x| *x = x.wrapping_add(*x / 2)),
            Self::I32(elements) => elements.iter_mut().for_each(|x| *x = x.wrapping_add(*x / 2)),
            Self::U8(elements) => elements.iter_mut().for_each(|x| *x = x.wrapping_add(*x / 2)),
            Self::I8(elements) => elements.iter_mut().for_each(|x| *x = x.wrapping_add(*x / 2)),
        }
    }

    /// Whether every element is a number: no NaN and no infinity.
    pub(crate) fn is_finite(&self) -> bool {
        !self.is_float() || (0..self.len()).all(|index| self.number(index).is_finite())
    }

    /// Exchanges two elements.
    pub(crate) fn swap(&mut self, left: usize, right: usize) {
        let width = self.element_bytes();
        for byte in 0..width {
            self.bytes_mut().swap(left * width + byte, right * width + byte);
        }
    }
}

/// The outputs of one run, by name.
///
/// ```
/// use gatework_lab::Outputs;
/// let outputs = Outputs::new().with("sum", vec![1.5f32]).with("count", vec![3u32]);
/// assert_eq!(outputs.get("count").unwrap().type_name(), "u32");
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outputs {
    tensors: Vec<(String, Tensor)>,
}

impl Outputs {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// With one more.
    pub fn with(mut self, name: impl Into<String>, tensor: impl Into<Tensor>) -> Self {
        self.tensors.push((name.into(), tensor.into()));
        self
    }

    /// The tensor called `name`.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.tensors.iter().find(|(found, _)| found == name).map(|(_, tensor)| tensor)
    }

    /// All of them, in the order they were added.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Tensor)> {
        self.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor))
    }

    /// All of them, to change.
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = (&str, &mut Tensor)> {
        self.tensors.iter_mut().map(|(name, tensor)| (name.as_str(), tensor))
    }

    /// The tensor called `name`, to change.
    pub(crate) fn tensor_mut(&mut self, name: &str) -> Option<&mut Tensor> {
        self.tensors.iter_mut().find(|(found, _)| found == name).map(|(_, tensor)| tensor)
    }

    /// Whether every element of every output is a number.
    pub(crate) fn is_finite(&self) -> bool {
        self.iter().all(|(_, tensor)| tensor.is_finite())
    }

    /// What is empty, as a sentence: the outputs as a whole, or one of them. Nothing was computed then, and
    /// nothing is always equal to its reference.
    pub(crate) fn emptiness(&self) -> Option<String> {
        if self.tensors.is_empty() {
            return Some("there is no output at all".to_owned());
        }
        let empty = self.iter().find(|(_, tensor)| tensor.is_empty());
        empty.map(|(name, _)| format!("output '{name}' has no element"))
    }

    /// The first place where two sets of outputs are not the same bits.
    pub(crate) fn first_difference(&self, other: &Outputs) -> Option<String> {
        for ((name, left), (_, right)) in self.iter().zip(other.iter()) {
            if left.len() != right.len() {
                return Some(format!("output '{name}' has {} elements, then {}", left.len(), right.len()));
            }
            if let Some(index) = (0..left.len()).find(|&index| left.element(index) != right.element(index)) {
                let (first, second) = (left.number(index), right.number(index));
                return Some(format!("output '{name}' element {index} was {first:e}, then {second:e}"));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_one_of_bits_not_of_values() {
        let plus = Outputs::new().with("x", vec![1.0f32, 0.0]);
        let minus = Outputs::new().with("x", vec![1.0f32, -0.0]);
        assert!(plus.first_difference(&minus).unwrap().contains("element 1"));
        let nan = Outputs::new().with("x", vec![f32::NAN]);
        assert_eq!(nan.first_difference(&nan.clone()), None);
    }

    #[test]
    fn swapping_moves_whole_elements() {
        let mut tensor = Tensor::from(vec![1u64, 2, 3]);
        tensor.swap(0, 2);
        assert_eq!(tensor, Tensor::from(vec![3u64, 2, 1]));
    }
}
