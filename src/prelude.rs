//! The extension traits, nameless: `use paceline::prelude::*;`.

pub use crate::io::{PaceReadExt as _, PaceWriteExt as _};
pub use crate::limiter::PolicyExt as _;
pub use crate::sink::PaceSinkExt as _;
pub use crate::stream::PaceStreamExt as _;
pub use crate::stream::PaceTryStreamExt as _;
