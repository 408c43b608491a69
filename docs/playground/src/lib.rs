//! What the page in `docs/playground` calls: the policies of paceline, compiled to WebAssembly.
//!
//! The page writes a question as text into the memory at [`input`], calls [`play`], and reads the answer, which is JSON, at [`output`].
//! `scripts/playground` builds the page.

mod question;

use std::cell::RefCell;

pub use question::answer;

thread_local! {
    /// The question, and then the answer.
    static TEXT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Where a question of `length` bytes is to be written.
#[expect(unsafe_code, reason = "no other function of the page has this name")]
#[unsafe(no_mangle)]
pub extern "C" fn input(length: usize) -> *mut u8 {
    TEXT.with_borrow_mut(|text| {
        text.clear();
        text.resize(length, 0);
        text.as_mut_ptr()
    })
}

/// Answers the question, and returns the length of the answer.
#[expect(unsafe_code, reason = "as above")]
#[unsafe(no_mangle)]
pub extern "C" fn play() -> usize {
    TEXT.with_borrow_mut(|text| {
        *text = answer(&String::from_utf8_lossy(text)).into_bytes();
        text.len()
    })
}

/// Where the answer is, until the next question.
#[expect(unsafe_code, reason = "as above")]
#[unsafe(no_mangle)]
pub extern "C" fn output() -> *const u8 {
    TEXT.with_borrow(Vec::as_ptr)
}
