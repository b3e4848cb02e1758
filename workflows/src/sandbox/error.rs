//! What can go wrong in the sandbox itself (not what it does wrong on purpose).

use std::path::PathBuf;

use super::Service;

/// A sandbox shop that cannot do its work.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The ledger file could not be read or written.
    #[error("the ledger {path} cannot be used: {source}", path = path.display())]
    Ledger {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A whole line of a ledger is not a record.
    #[error("line {line} of the ledger {path} is not a record: {source}", path = path.display())]
    LedgerLine {
        /// Which file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// Why.
        source: serde_json::Error,
    },
    /// The ledger's writer has ended.
    #[error("the ledger is closed")]
    LedgerClosed,
    /// No port could be opened for a service.
    #[error("the {service} service cannot listen: {source}", service = service.name())]
    Listen {
        /// Which service.
        service: Service,
        /// Why.
        source: std::io::Error,
    },
    /// The shop's own side was asked for something that its books do not allow.
    #[error("{service} refuses {subject}: {reason}", service = service.name())]
    Refused {
        /// Which service.
        service: Service,
        /// Of what.
        subject: String,
        /// Why.
        reason: &'static str,
    },
}
