//! Why the calls cannot be set up.

/// What is wrong with the configuration of the downstreams. No value that may be secret is shown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A key does not have a value that it may have.
    #[error("{key}: {message}")]
    Invalid {
        /// The key, such as `downstreams.stock.retry.attempts`.
        key: String,
        /// What is wrong and what to write instead.
        message: String,
    },
    /// TLS has no cryptography to work with.
    #[error("call overdue_activities::init_crypto() before the activities are registered")]
    CryptoMissing,
    /// The HTTP client cannot be built.
    #[error("the HTTP client cannot be built: {reason}")]
    Client {
        /// Why.
        reason: String,
    },
}

impl ConfigError {
    pub(crate) fn invalid(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Invalid { key: key.into(), message: message.into() }
    }
}
