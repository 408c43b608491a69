mod cancelling;
mod gate;
mod line;
mod owned;
mod shared;
mod within;
