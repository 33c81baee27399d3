//! Who may ask: the admin token.
//!
//! Invariants:
//! 1. A token is compared in a time that does not depend on where it differs.
//! 2. A token is never in a log line, a `Debug` text or a response.

use axum::http::{HeaderMap, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The secret that opens the admin API.
#[derive(Clone, PartialEq, Eq)]
pub struct AdminToken(String);

/// A text is no admin token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an admin token has {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX} visible ASCII characters")]
pub struct TokenError;

impl AdminToken {
    /// A token from its text.
    ///
    /// # Errors
    /// It is too short to be a secret, too long, or has characters that no header can carry.
    pub fn new(text: &str) -> Result<AdminToken, TokenError> {
        let lengths = TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX;
        if lengths.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic()) {
            Ok(AdminToken(text.to_owned()))
        } else {
            Err(TokenError)
        }
    }

    /// Whether the request carries the token: `Bearer TOKEN`, or, for browsers, `Basic` with the token as password.
    pub(crate) fn admits(&self, headers: &HeaderMap) -> bool {
        let Some(text) = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()) else {
            return false;
        };
        let Some((scheme, rest)) = text.split_once(' ') else { return false };
        if scheme.eq_ignore_ascii_case("bearer") {
            return self.equals(rest.trim().as_bytes());
        }
        if !scheme.eq_ignore_ascii_case("basic") {
            return false;
        }
        let Ok(pair) = STANDARD.decode(rest.trim()) else { return false };
        let colon = pair.iter().position(|byte| *byte == b':');
        colon.is_some_and(|colon| self.equals(&pair[colon + 1..]))
    }

    fn equals(&self, given: &[u8]) -> bool {
        let token = self.0.as_bytes();
        let differing = token.iter().zip(given).fold(0, |differing, (a, b)| differing | (a ^ b));
        differing == 0 && token.len() == given.len()
    }
}

impl std::fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AdminToken")
    }
}

const TOKEN_BYTES_MIN: usize = 16;
const TOKEN_BYTES_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn admits(authorization: &str) -> bool {
        let token = AdminToken::new("0123456789abcdef").expect("long enough");
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, authorization.parse().expect("a header value"));
        token.admits(&headers)
    }

    #[test]
    fn only_the_exact_token_opens() {
        assert!(admits("Bearer 0123456789abcdef"));
        assert!(admits("bearer 0123456789abcdef"));
        assert!(admits(&format!("Basic {}", STANDARD.encode("anybody:0123456789abcdef"))));
        for wrong in
            ["", "Bearer", "Bearer ", "Bearer 0123456789abcde", "Bearer 0123456789abcdef0", "Basic !", "Basic QQ=="]
        {
            assert!(!admits(wrong), "{wrong:?}");
        }
        assert!(!AdminToken::new("0123456789abcdef").expect("long enough").admits(&HeaderMap::new()));
    }

    #[test]
    fn a_token_is_a_secret_of_some_length() {
        assert_eq!(AdminToken::new("short"), Err(TokenError));
        assert_eq!(AdminToken::new("0123456789abcde\n"), Err(TokenError));
        assert!(!format!("{:?}", AdminToken::new("0123456789abcdef")).contains("0123"));
    }
}
