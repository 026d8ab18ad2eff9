//! Key streams: a header, then one section for each job.
//!
//! ```text
//! offset  bytes
//!      0      8   magic "GWFSSKEY"
//!      8      2   version
//!     10      2   generator id
//!     12      1   party
//!     13      1   n: bits of the ring
//!     14      1   f: fractional bits
//!     15      1   zero
//!     16      8   number of sections
//!     24     16   public AES key
//!     40     16   this party's seed
//!     56    8 s   length of each section in bytes
//!   then          the sections
//! ```
//!
//! All numbers are little-endian. A section is key material in the order in which its circuit asks for it: of every array of shares and
//! of truth tables the half that the party does not derive, packed to its bits and filled up to a byte; and the correction words of
//! trees, which are the same for both parties, in tiles.

mod material;
mod stream;

pub(crate) use material::{DealtSection, ReadSection, point_cost, share_cost};
pub(crate) use stream::SharedBytes;
pub use stream::{FixedPoint, HEADER_BYTES, KeyStream};
