mod cooldown;
mod network;
mod permits;
mod resize;
