//! What must hold outside before a program serves.

use async_trait::async_trait;

/// Looks at something that the activities rely on, such as a database and its statements.
///
/// `serve` asks before it opens its store, and does not start when it fails; commands that only read do not ask.
#[async_trait]
pub trait StartCheck: Send + Sync {
    /// Looks, within a time of its own.
    ///
    /// # Errors
    /// What is wrong, and what to do about it.
    async fn check(&self) -> Result<(), Box<dyn std::error::Error + Send + Sync>>;
}
