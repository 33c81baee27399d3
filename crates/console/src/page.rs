//! The status page: one file that asks `/status.json` every two seconds.

use axum::http::header;
use axum::response::{IntoResponse, Response};

pub(crate) async fn page() -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, PAGE).into_response()
}

const PAGE: &str = include_str!("page.html");
// The page is one file, so its style and script are inline; it loads nothing and talks to its own origin only.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; \
                      img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
