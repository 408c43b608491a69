//! Classes of requests, of which one waits less than another.
