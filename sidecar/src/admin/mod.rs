//! The port for operators: metrics, probes, clients, events, the live page, and changes.
