//! Timelines drawn as rows, played into a stream and compared with what came out.
//!
//! Every token is one [`TICK`]; white space is free, so that two rows can be aligned.
//!
//! | token     | in that tick                                                    |
//! |-----------|-----------------------------------------------------------------|
//! | `a`       | one item: any letter or digit                                   |
//! | `X`       | an error item (inputs: [`try_source`] only)                     |
//! | `[ab]`    | one item that is a group (outputs only)                         |
//! | `(ab)`    | several things, in this order: items, groups, and last the end  |
//! | `-`       | nothing                                                         |
//! | `\|`      | the end; nothing may follow it                                  |
//!
//! A row that breaks the rules panics, and says where and what would be right. A stream that does not do as drawn
//! panics with both rows, aligned tick by tick:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! use futures::StreamExt;
//! use testkit::marble;
//!
//! marble::check(
//!     |input| input.filter(|item| std::future::ready(*item != 'b')),
//!     "a - b c - (de) - |",
//!     "a - - c - (de) - |",
//! )
//! .await;
//! # }
//! ```
//!
//! All of it is in virtual time: run it on a paused clock (`start_paused = true`).

mod check;
mod mark;
mod parse;
mod row;
mod source;

use std::time::Duration;

pub use self::{
    check::{check, check_on_demand, run, try_check},
    mark::Mark,
    row::Row,
    source::{Failure, Source, TrySource, source, try_source},
};

/// What one token of a row stands for.
pub const TICK: Duration = Duration::from_millis(10);
