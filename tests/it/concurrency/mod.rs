mod cancelling;
mod cooldown;
mod line;
mod permits;
mod resize;
