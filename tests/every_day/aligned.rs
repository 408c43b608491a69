//! Windows that begin on the hour, at midnight or with the month.
