//! Attacks: many keys at once, and steps of the server's clock. In real time, on real servers.
//!
//! A test counts passes, and asserts bounds that hold on a slow machine too.

mod clock_steps;
mod herd;
