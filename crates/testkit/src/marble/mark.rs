//! How an output item is drawn.

/// Draws an output item as it stands in a row.
pub trait Mark {
    /// The token for this item.
    fn mark(&self) -> String;
}

impl Mark for char {
    fn mark(&self) -> String {
        self.to_string()
    }
}

/// A group, in brackets.
impl<T: Mark> Mark for Vec<T> {
    fn mark(&self) -> String {
        let inside: String = self.iter().map(Mark::mark).collect();
        format!("[{inside}]")
    }
}

/// The item, or `X` whatever the error.
impl<T: Mark, E> Mark for Result<T, E> {
    fn mark(&self) -> String {
        self.as_ref().map_or_else(|_| "X".to_owned(), Mark::mark)
    }
}
