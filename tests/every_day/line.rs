//! What happens to requests that wait: how many, how long, and until when.
