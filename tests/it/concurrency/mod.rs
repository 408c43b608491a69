mod cancelling;
mod cooldown;
mod line;
mod network;
mod patience;
mod permits;
mod resize;
mod schedules;
