//! What a backend keeps, as others hold it.

use std::any::Any;
use std::sync::Arc;

/// Something that a backend keeps: words of a tensor, or keys. Only the backend that made it can look inside.
#[derive(Clone)]
pub struct Handle(Arc<dyn Any + Send + Sync>);

impl Handle {
    /// A handle of what a backend keeps.
    pub fn new(kept: impl Any + Send + Sync) -> Self {
        Self(Arc::new(kept))
    }

    /// The contents, if they are of this type.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }

    /// The contents, if this is their only handle; otherwise the handle.
    pub fn try_unwrap<T: Any + Send + Sync>(self) -> Result<T, Self> {
        let kept = self.0.downcast::<T>().map_err(Self)?;
        Arc::try_unwrap(kept).map_err(|shared| Self(shared))
    }

    /// Whether both name the same thing.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
