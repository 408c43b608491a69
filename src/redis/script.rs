use std::sync::OnceLock;

/// The text of a script and what it is called by.
#[derive(Debug)]
pub(super) struct Script {
    text: &'static str,
    hash: OnceLock<String>,
}

impl Script {
    pub(super) const fn new(text: &'static str) -> Self {
        Self {
            text,
            hash: OnceLock::new(),
        }
    }

    pub(super) const fn text(&self) -> &'static str {
        self.text
    }

    /// By which a server knows a script that it has been given once; `hash` makes it from the text.
    pub(super) fn hash(&self, hash: impl FnOnce(&str) -> String) -> &str {
        self.hash.get_or_init(|| hash(self.text))
    }
}

/// Grants, renews and takes back leases.
pub(super) static LEASES: Script = Script::new(include_str!("lua/leases.lua"));

/// Decides for all policies: the twins, and what asks them.
pub(super) static DECIDE: Script = Script::new(concat!(
    include_str!("lua/memory.lua"),
    include_str!("lua/token_bucket.lua"),
    include_str!("lua/interval.lua"),
    include_str!("lua/sliding_log.lua"),
    include_str!("lua/sliding_counter.lua"),
    include_str!("lua/fixed_window.lua"),
    include_str!("lua/decide.lua"),
));
