//! `/`: the live page.

use std::hash::{BuildHasher, RandomState};

use http::HeaderValue;
use http::header::CONTENT_SECURITY_POLICY;

use super::answer::{Answer, of_type};

const PAGE: &str = include_str!("page.html");
/// Stands in the page where the nonce goes.
const NONCE: &str = "NONCE";

/// The page runs its own script and style, reads this port, and does nothing else.
pub(super) fn answer() -> Answer {
    let nonce = nonce();
    let mut answer = of_type("text/html; charset=utf-8", PAGE.replace(NONCE, &nonce));
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    );
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        answer.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
    }
    answer
}

/// 128 bits that another site cannot guess: hashes under keys that the system chose at random.
fn nonce() -> String {
    let half = || RandomState::new().hash_one(());
    format!("{:016x}{:016x}", half(), half())
}
