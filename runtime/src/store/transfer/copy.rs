//! Copying one store into another, in an order in which every interruption leaves at most one that can be served:
//!
//! ```text
//! target: copying from source   →   source: no node   →   everything   →   compared   →   source: moved to target   →   target: no mark
//! ```
//!
//! Interrupted, it is run again: what is there already is compared instead of stored.

use serde::Serialize;

use super::digest::Digest;
use super::{Counts, Imported, Place, Portable, Standing, StoreName};
use crate::store::StoreError;

/// The most items that are carried over at once: one commit of the target.
const ITEMS_PER_PARCEL: usize = 500;

/// What was copied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CopyReport {
    /// Executions, open ones, closed ones and tombstones.
    pub workflows: u64,
    /// History rows.
    pub history_rows: u64,
    /// Events in them.
    pub events: u64,
    /// Search attributes.
    pub attributes: u64,
    /// Inbox rows.
    pub inbox_rows: u64,
    /// Starts that were asked for inside the store and are not made.
    pub requested_starts: u64,
    /// Events that sinks do not have yet.
    pub outbox_rows: u64,
    /// Tokens.
    pub tokens: u64,
    /// What nodes agreed on: where breakers stand, and limits that a person set.
    pub controls: u64,
    /// SHA-256 over everything, in the order of the keys; the same of both stores.
    pub hash: String,
}

/// Why a store was not copied, or not to the end. The marks say so: what must not be served is refused.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// One of the two did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The two are not as they must be; nothing was changed.
    #[error("{0}")]
    Refused(String),
    /// What the target holds in the end is not what the source holds.
    #[error("the copy is not equal to its source: {0}; the source was not touched")]
    Unequal(String),
}

/// How the target stands to the source before anything is done.
enum Beginning {
    /// It is empty.
    Empty,
    /// It holds a part of an earlier, interrupted copy of this source, and nothing else.
    Unfinished,
    /// It holds what was moved into the source once: it is emptied first.
    MovedBack,
}

/// Copies everything from one store into another, and moves the right to be served with it.
///
/// # Errors
/// [`CopyError`].
pub async fn copy(from: &dyn Portable, to: &dyn Portable) -> Result<CopyReport, CopyError> {
    copy_by(from, to, ITEMS_PER_PARCEL).await
}

/// The same in parcels of so many items.
pub(super) async fn copy_by(from: &dyn Portable, to: &dyn Portable, items: usize) -> Result<CopyReport, CopyError> {
    let (source, target) = (from.standing().await?, to.standing().await?);
    let beginning = check(from, &source, to, &target).await?;
    match beginning {
        Beginning::Empty => to.mark(Some(&source.name), None).await?,
        Beginning::Unfinished => {}
        Beginning::MovedBack => begin_anew(to, &source.name, target.moved_to.as_ref()).await?,
    }
    // Ends the source's nodes: one whose lease is over may still wake up.
    from.mark(None, source.moved_to.as_ref()).await?;
    let mut digest = transfer(from, to, items).await;
    if let (Err(CopyError::Unequal(_)), Beginning::Unfinished) = (&digest, &beginning) {
        // The source went on after the copy was interrupted.
        begin_anew(to, &source.name, None).await?;
        digest = transfer(from, to, items).await;
    }
    let digest = digest?;
    from.mark(None, Some(&target.name)).await?;
    to.mark(None, None).await?;
    let Counts { executions, history_rows, attributes, inbox_rows, requested_starts, outbox_rows, tokens, controls } =
        digest.counts;
    Ok(CopyReport {
        workflows: executions,
        history_rows,
        events: digest.events,
        attributes,
        inbox_rows,
        requested_starts,
        outbox_rows,
        tokens,
        controls,
        hash: digest.hash(),
    })
}

/// Empties the target. It is marked all the while, so that nobody takes the rest for a store.
async fn begin_anew(to: &dyn Portable, source: &StoreName, moved_to: Option<&StoreName>) -> Result<(), StoreError> {
    to.mark(Some(source), moved_to).await?;
    to.clear().await?;
    to.mark(Some(source), None).await
}

async fn check(from: &dyn Portable, source: &Standing, to: &dyn Portable, target: &Standing) -> Result<Beginning, CopyError> {
    let refuse = |reason: String| Err(CopyError::Refused(reason));
    let (from_url, to_url) = (&source.name.url, &target.name.url);
    for standing in [source, target] {
        if let Some(holder) = &standing.in_use_by {
            return refuse(format!("{} is in use by {holder}: stop it first", standing.name.url));
        }
    }
    if source.name.id == target.name.id {
        return refuse(format!("{from_url} and {to_url} are the same store"));
    }
    if let Some(StoreName { url, .. }) = &source.copying_from {
        return refuse(format!("{from_url} is itself the unfinished copy of {url}: finish that one first"));
    }
    let moved_here = match &source.moved_to {
        Some(moved) if moved.id != target.name.id => {
            return refuse(format!("{from_url} was moved to {}: copy from there", moved.url));
        }
        moved => moved.is_some(),
    };
    let (ours, theirs) = (from.facts().shards, to.facts().shards);
    if ours != theirs {
        return refuse(format!(
            "{from_url} has {ours} shards and {to_url} has {theirs}: choose a target that does not exist yet"
        ));
    }
    match (&target.copying_from, &target.moved_to) {
        (Some(copying), _) if copying.id != source.name.id => {
            refuse(format!("{to_url} is the unfinished copy of {}: finish that one, or choose another target", copying.url))
        }
        // Interrupted before it was emptied.
        (_, Some(moved)) if moved.id == source.name.id => Ok(Beginning::MovedBack),
        (_, Some(moved)) => refuse(format!("{to_url} was moved to {}: choose another target", moved.url)),
        (Some(_), None) => Ok(Beginning::Unfinished),
        (None, None) if moved_here => refuse(format!("{from_url} was moved to {to_url} already")),
        (None, None) if to.counts().await? == Counts::default() => Ok(Beginning::Empty),
        (None, None) => refuse(format!("{to_url} is not empty: choose a target that does not exist yet")),
    }
}

/// Carries everything over and compares both sides.
async fn transfer(from: &dyn Portable, to: &dyn Portable, items: usize) -> Result<Digest, CopyError> {
    let mut sent = Digest::default();
    let mut place = Some(Place::START);
    while let Some(at) = place {
        let (parcel, next) = from.export(&at, items).await?;
        sent.add(&parcel);
        if let Imported::Differs(what) = to.import(&parcel).await? {
            return Err(CopyError::Unequal(format!("{what} is there already and is something else")));
        }
        place = next;
    }
    let arrived = digest_of(to, items).await?;
    let sides = [
        ("the source's rows", from.counts().await?),
        ("the target's rows", to.counts().await?),
        ("what arrived", arrived.counts),
    ];
    for (name, counts) in sides {
        if counts != sent.counts {
            return Err(CopyError::Unequal(format!("{name} are {counts:?}, and {:?} were sent", sent.counts)));
        }
    }
    if (arrived.events, arrived.hash()) != (sent.events, sent.hash()) {
        return Err(CopyError::Unequal("its rows have other contents".into()));
    }
    Ok(sent)
}

pub(super) async fn digest_of(store: &dyn Portable, items: usize) -> Result<Digest, StoreError> {
    let mut digest = Digest::default();
    let mut place = Some(Place::START);
    while let Some(at) = place {
        let (parcel, next) = store.export(&at, items).await?;
        digest.add(&parcel);
        place = next;
    }
    Ok(digest)
}
