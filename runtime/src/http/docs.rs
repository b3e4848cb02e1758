//! The API's description and its page, without inline script and without anything from elsewhere.

use axum::Router;
use axum::extract::Path;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::{Api, openapi};

const PAGE: &str = r#"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Overdue: HTTP API</title>
</head>
<body>
<div id="api"></div>
<script src="/docs/scalar.js"></script>
<script src="/docs/page.js"></script>
</body>
</html>
"#;

const SCRIPT: &str = "Scalar.createApiReference('#api', { url: '/openapi.json', withDefaultFonts: false, telemetry: false, hideClientButton: true, showDeveloperTools: 'never', showToolbar: 'never', agent: { disabled: true }, mcp: { disabled: true } });\n";

/// Scripts from here only; the page's own library sets styles inline.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
                      font-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(super) fn router() -> Router<Api> {
    Router::new()
        .route("/openapi.json", get(|| async { with_policy("application/json", openapi().into_bytes()) }))
        .route("/docs", get(|| async { with_policy("text/html; charset=utf-8", PAGE.as_bytes().to_vec()) }))
        .route("/docs/{file}", get(asset))
}

async fn asset(Path(file): Path<String>) -> Response {
    const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
    match file.as_str() {
        "page.js" => with_policy(JAVASCRIPT, SCRIPT.as_bytes().to_vec()),
        "scalar.js" => match scalar_api_reference::get_asset("scalar.js") {
            Some(script) => with_policy(JAVASCRIPT, script),
            None => StatusCode::NOT_FOUND.into_response(),
        },
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

fn with_policy(content_type: &'static str, body: Vec<u8>) -> Response {
    let headers: [(HeaderName, HeaderValue); 4] = [
        (header::CONTENT_TYPE, HeaderValue::from_static(content_type)),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    ];
    (headers, body).into_response()
}
