//! Every order in which threads can take prefetched permits while another thread reclaims them.
#![expect(dead_code, reason = "the tests use a part of the file")]

#[path = "../../src/limiter/prefetch.rs"]
mod prefetch;

// The file imports these from its own crate.
mod policy {
    pub(crate) use paceline::policy::Policy;
}
mod time {
    pub(crate) use paceline::time::Tick;

    pub(crate) const fn is_real() -> bool {
        true
    }
}
mod wait {
    #[derive(Clone, Copy)]
    pub(crate) enum Intent {
        Acquire,
        Peek,
    }
}
