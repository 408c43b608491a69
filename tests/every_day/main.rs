//! What users of limiters ask for every day, each as its claim.

mod aligned;
mod combine;
mod configured;
mod line;
mod priorities;
mod settle;
