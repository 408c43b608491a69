mod cancelling;
mod foreign;
mod gate;
mod line;
mod owned;
mod runtimes;
mod shared;
mod within;
