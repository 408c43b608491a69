//! Every order in which the amount of a load shedder is written while requests read it.

#[path = "../../src/shed/gauge.rs"]
mod gauge;
