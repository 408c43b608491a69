mod pace_read;
mod pace_write;
