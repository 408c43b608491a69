pub(crate) mod adaptive;
mod admit;
mod claims;
mod cooldown;
mod keyed_permits;
mod network;
mod permits;
mod resize;
mod within;
