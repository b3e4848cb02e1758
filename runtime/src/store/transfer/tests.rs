//! Copies between stores of every kind: whole, interrupted anywhere, refused, brought back.

mod sides;
mod unequal;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;

use self::sides::{MODEL, Make, POSTGRES, SHARED_MODEL, SQLITE, Side, between_all, fill, go_on, kinds};
use super::copy::copy_by;
use super::*;
use crate::store::conformance::SHARDS;
use crate::store::conformance::fixtures::{advance, at, new, order, sleeping};
use crate::store::{Advance, CommitError, ModelStore, NewNode, Outcome, Write};

#[tokio::test]
async fn everything_is_there_afterwards_and_only_the_target_can_be_served() {
    between_all(async |from, to| {
        fill(&from).await;
        let before = from.sum().await;
        let report = copy_by(from.portable.as_ref(), to.portable.as_ref(), 2).await.unwrap();
        assert_eq!(to.sum().await, before);
        assert_eq!(from.sum().await, before, "the source keeps its own");
        let counts = (report.workflows, report.history_rows, report.attributes, report.inbox_rows, report.tokens);
        assert_eq!((counts, report.hash), ((7, 13, 10, 6, 2), before.1));
        assert!(to.is_servable().await);
        let refused = from.standing().await.check_servable().unwrap_err().to_string();
        assert!(refused.contains(&to.standing().await.name.url), "it names the target: {refused}");
        // What is stored is what the engine reads.
        let keys = [order("1"), order("retired"), order("closed"), order("ü")];
        assert_eq!(to.store.load(&keys).await.unwrap(), from.store.load(&keys).await.unwrap());
        let node = to.node().await;
        let moved = Advance { rev: 1, row: Some(sleeping(None)), ..advance(&order("1")) };
        assert_eq!(node.write(Write::Advance(moved)).await, Outcome::Advanced, "it goes on");
        assert_eq!(
            node.write(Write::Start(new(&order("retired")))).await,
            Outcome::Exists(Box::new(node.find(&order("retired")).await.unwrap()))
        );
    })
    .await;
}

#[tokio::test]
async fn an_empty_store_can_be_moved_too() {
    between_all(async |from, to| {
        let report = copy(from.portable.as_ref(), to.portable.as_ref()).await.unwrap();
        assert_eq!((report.workflows, report.events, to.is_servable().await, from.is_servable().await), (0, 0, true, false));
    })
    .await;
}

/// A store whose writes fail after so many, before or behind their effect.
struct Breaking {
    inner: Arc<dyn Portable>,
    left: Arc<AtomicUsize>,
    applied: bool,
}

impl Breaking {
    async fn write<T>(&self, write: impl Future<Output = Result<T, StoreError>> + Send) -> Result<T, StoreError> {
        let goes = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        if goes {
            return write.await;
        }
        if self.applied {
            write.await?;
        }
        Err(StoreError::Unavailable("interrupted".into()))
    }
}

#[async_trait]
impl Portable for Breaking {
    fn facts(&self) -> &StoreFacts {
        self.inner.facts()
    }

    async fn standing(&self) -> Result<Standing, StoreError> {
        self.inner.standing().await
    }

    async fn mark(&self, copying_from: Option<&StoreName>, moved_to: Option<&StoreName>) -> Result<(), StoreError> {
        self.write(self.inner.mark(copying_from, moved_to)).await
    }

    async fn export(&self, place: &Place, limit: usize) -> Result<(Parcel, Option<Place>), StoreError> {
        self.inner.export(place, limit).await
    }

    async fn import(&self, parcel: &Parcel) -> Result<Imported, StoreError> {
        self.write(self.inner.import(parcel)).await
    }

    async fn clear(&self) -> Result<(), StoreError> {
        self.write(self.inner.clear()).await
    }

    async fn counts(&self) -> Result<Counts, StoreError> {
        self.inner.counts().await
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

/// A copy that is interrupted at its write of this number; false when there is no such write.
async fn interrupted(from: &Side, to: &Side, at: usize, applied: bool) -> bool {
    let left = Arc::new(AtomicUsize::new(at));
    let breaking = |side: &Side| Breaking { inner: side.portable.clone(), left: left.clone(), applied };
    copy_by(&breaking(from), &breaking(to), 2).await.is_err()
}

/// Interrupts a copy at each of its writes, on stores made anew each time, and runs it again to the end.
async fn at_every_write(from: &Make, to: &Make, prepare: impl AsyncFn(&Side, &Side)) -> usize {
    for applied in [false, true] {
        for at in 0.. {
            let (from, to) = (from().await, to().await);
            prepare(&from, &to).await;
            let before = from.sum().await;
            if !interrupted(&from, &to, at, applied).await {
                if applied {
                    return at;
                }
                break;
            }
            assert!(!(from.is_servable().await && to.is_servable().await && at > 0), "never both, at {at}");
            match copy_by(from.portable.as_ref(), to.portable.as_ref(), 2).await {
                Ok(_) => {}
                // Interrupted behind the very last write.
                Err(CopyError::Refused(reason)) => {
                    assert!(reason.contains("was moved to") && reason.ends_with("already"), "{reason}")
                }
                Err(other) => panic!("{other}"),
            }
            assert_eq!((to.sum().await, from.is_servable().await, to.is_servable().await), (before, false, true), "at {at}");
        }
    }
    unreachable!("some copy ends")
}

#[tokio::test]
async fn a_copy_that_is_interrupted_at_any_write_leaves_at_most_one_that_can_be_served_and_ends_when_it_is_run_again() {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let kinds = kinds(&dir);
    let pairs = [
        (MODEL, MODEL),
        (SQLITE, SQLITE),
        (SHARED_MODEL, SQLITE),
        (SQLITE, SHARED_MODEL),
        (SQLITE, POSTGRES),
        (POSTGRES, SQLITE),
        (POSTGRES, POSTGRES),
    ];
    for (from, to) in pairs {
        let writes = at_every_write(&kinds[from], &kinds[to], async |from, _| fill(from).await).await;
        assert!(writes > 10, "{writes}");
    }
}

#[tokio::test]
async fn a_move_back_that_is_interrupted_at_any_write_ends_when_it_is_run_again() {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let kinds = kinds(&dir);
    for (from, to) in [(MODEL, MODEL), (SQLITE, SQLITE), (SQLITE, POSTGRES)] {
        // The source of the move back is what the target was moved into before.
        let writes = at_every_write(&kinds[from], &kinds[to], async |from, to| {
            fill(to).await;
            copy(to.portable.as_ref(), from.portable.as_ref()).await.unwrap();
            go_on(from).await;
        })
        .await;
        assert!(writes > 10, "{writes}");
    }
}

#[tokio::test]
async fn a_source_that_went_on_after_an_interruption_is_copied_anew() {
    between_all(async |from, to| {
        fill(&from).await;
        assert!(interrupted(&from, &to, 9, true).await);
        assert!(from.is_servable().await && !to.is_servable().await);
        go_on(&from).await;
        copy_by(from.portable.as_ref(), to.portable.as_ref(), 2).await.unwrap();
        assert_eq!(to.sum().await, from.sum().await);
        assert!(!from.is_servable().await && to.is_servable().await);
    })
    .await;
}

#[tokio::test]
async fn what_was_moved_can_be_moved_back_and_is_then_as_it_is_now() {
    between_all(async |here, there| {
        fill(&here).await;
        copy(here.portable.as_ref(), there.portable.as_ref()).await.unwrap();
        go_on(&there).await;
        let now = there.sum().await;
        copy(there.portable.as_ref(), here.portable.as_ref()).await.unwrap();
        assert_eq!((here.sum().await, here.is_servable().await, there.is_servable().await), (now, true, false));
    })
    .await;
}

async fn refusal(from: &Side, to: &Side) -> String {
    let before = (from.standing().await, to.standing().await, from.sum().await, to.sum().await);
    let refused = copy(from.portable.as_ref(), to.portable.as_ref()).await.unwrap_err();
    assert!(matches!(refused, CopyError::Refused(_)), "{refused}");
    let after = (from.standing().await, to.standing().await, from.sum().await, to.sum().await);
    assert_eq!(after, before, "nothing changed");
    refused.to_string()
}

#[tokio::test]
async fn a_target_with_contents_of_its_own_and_a_store_that_lies_elsewhere_are_refused() {
    between_all(async |from, to| {
        fill(&from).await;
        to.node().await.start(new(&order("its own"))).await;
        to.portable.mark(None, None).await.unwrap();
        assert!(refusal(&from, &to).await.contains("not empty"));
        assert!(refusal(&from, &from).await.contains("same store"));

        let third = Side::of(Arc::new(ModelStore::new(SHARDS)));
        assert!(interrupted(&from, &third, 3, true).await);
        assert!(refusal(&to, &third).await.contains("the unfinished copy of"), "of another one");
        assert!(refusal(&third, &Side::of(Arc::new(ModelStore::new(SHARDS)))).await.contains("itself the unfinished copy"));
        copy(from.portable.as_ref(), third.portable.as_ref()).await.unwrap();
        assert!(refusal(&from, &Side::of(Arc::new(ModelStore::new(SHARDS)))).await.contains("copy from there"));
        assert!(refusal(&from, &third).await.contains("already"));
        assert!(refusal(&to, &from).await.contains("was moved to"), "what is left in a moved store is nobody's target");
        let other = Side::of(Arc::new(ModelStore::new(SHARDS + 1)));
        assert!(refusal(&third, &other).await.contains(&format!("{SHARDS} shards")));
    })
    .await;
}

#[tokio::test]
async fn no_fence_survives_a_mark() {
    between_all(async |side, _| {
        let node = side.node().await;
        assert_eq!(node.try_commit(&[]).await.unwrap(), []);
        side.portable.mark(None, None).await.unwrap();
        assert!(matches!(node.try_commit(&[]).await, Err(CommitError::FenceLost { .. })));
    })
    .await;
}

#[tokio::test]
async fn a_store_that_a_living_node_holds_is_refused_and_no_node_joins_a_marked_one() {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let kinds = kinds(&dir);
    for (from, to) in [(SHARED_MODEL, SHARED_MODEL), (POSTGRES, SHARED_MODEL), (SHARED_MODEL, POSTGRES)] {
        let (from, to) = (kinds[from]().await, kinds[to]().await);
        let living = NewNode { url: Some("http://10.0.0.1:7070".into()), ..NewNode::new("living", Duration::from_secs(9)) };
        for held in [&from, &to] {
            let fence = held.store.join(&living).await.unwrap();
            assert!(refusal(&from, &to).await.contains("in use by node living at http://10.0.0.1:7070"));
            held.store.leave(&fence).await.unwrap();
        }
        let frozen = from.node().await;
        copy(from.portable.as_ref(), to.portable.as_ref()).await.unwrap();
        assert!(frozen.try_commit(&[]).await.is_err(), "a node that was frozen all the while changes nothing");
        assert!(matches!(from.store.join(&living).await, Err(StoreError::Refused(_))));
        to.store.join(&living).await.unwrap();
    }
}

fn request(id: &str) -> RequestedStart {
    RequestedStart {
        key: order(id),
        shard: order(id).shard(SHARDS),
        input: r#"{"n": 1}"#.into(),
        attributes: Some("{}".into()),
        start_at: Some(at(5)),
        refused: None,
    }
}

#[tokio::test]
async fn starts_that_were_asked_for_inside_a_store_travel_to_one_that_can_keep_them_and_are_not_dropped_by_another() {
    let model = Arc::new(ModelStore::shared(SHARDS, None));
    for id in ["a", "b", "c"] {
        model.request_start(request(id));
    }
    let from = Side::of(model);
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let embedded = kinds(&dir).remove(SQLITE)().await;
    let refused = copy(from.portable.as_ref(), embedded.portable.as_ref()).await.unwrap_err();
    assert!(refused.to_string().contains("serve the source until it is taken up"), "{refused}");
    assert!(from.is_servable().await && !embedded.is_servable().await);
    let to = Side::of(Arc::new(ModelStore::new(SHARDS)));
    let report = copy_by(from.portable.as_ref(), to.portable.as_ref(), 2).await.unwrap();
    assert_eq!((report.requested_starts, to.store.requested_start(&order("b")).await.unwrap()), (3, Some(request("b"))));
}
