//! Every order in which a switch is set while requests wait for it.
#![expect(
    dead_code,
    unreachable_pub,
    reason = "the tests use a part of the file, which is public in its own crate"
)]

#[path = "../../src/limiter/switch.rs"]
mod switch;

// The file imports these from its own crate.
mod mode {
    pub(crate) use paceline::limiter::Mode;
}
mod share {
    pub(crate) use paceline::limiter::Share;
}
