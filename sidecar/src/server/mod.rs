//! The public port: listeners, connections, and how they end.
