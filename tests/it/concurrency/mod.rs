mod cancelling;
mod cooldown;
mod line;
mod network;
mod permits;
mod resize;
mod schedules;
