//! Copies on the way of which something is changed or left out.

use std::sync::Arc;

use async_trait::async_trait;

use super::request;
use super::sides::{Side, fill};
use crate::store::conformance::SHARDS;
use crate::store::conformance::fixtures::at;
use crate::store::transfer::copy::copy_by;
use crate::store::transfer::{
    CarriedExecution, CarriedSignal, CopyError, Counts, Imported, Parcel, Place, Portable, Standing, StoreName, copy,
};
use crate::store::{ModelStore, OutboxRow, StoreError, StoreFacts};

/// A store that changes what it is given.
struct Careless(Arc<dyn Portable>, Fault);

#[async_trait]
impl Portable for Careless {
    fn facts(&self) -> &StoreFacts {
        self.0.facts()
    }

    async fn standing(&self) -> Result<Standing, StoreError> {
        self.0.standing().await
    }

    async fn mark(&self, copying_from: Option<&StoreName>, moved_to: Option<&StoreName>) -> Result<(), StoreError> {
        self.0.mark(copying_from, moved_to).await
    }

    async fn export(&self, place: &Place, limit: usize) -> Result<(Parcel, Option<Place>), StoreError> {
        self.0.export(place, limit).await
    }

    async fn import(&self, parcel: &Parcel) -> Result<Imported, StoreError> {
        let mut parcel = parcel.clone();
        (self.1)(&mut parcel);
        self.0.import(&parcel).await
    }

    async fn clear(&self) -> Result<(), StoreError> {
        self.0.clear().await
    }

    async fn counts(&self) -> Result<Counts, StoreError> {
        self.0.counts().await
    }

    async fn close(&self) {
        self.0.close().await;
    }
}

type Fault = Box<dyn Fn(&mut Parcel) + Send + Sync>;

fn in_executions(fault: fn(&mut CarriedExecution)) -> Fault {
    Box::new(move |parcel| {
        if let Parcel::Executions(all) = parcel {
            all.iter_mut().for_each(fault);
        }
    })
}

fn in_signals(fault: fn(&mut CarriedSignal)) -> Fault {
    Box::new(move |parcel| {
        if let Parcel::Signals(all) = parcel {
            all.iter_mut().for_each(fault);
        }
    })
}

fn in_events(fault: fn(&mut OutboxRow)) -> Fault {
    Box::new(move |parcel| {
        if let Parcel::Outbox(all) = parcel {
            all.iter_mut().for_each(fault);
        }
    })
}

fn leaves_out(parcel: &mut Parcel) {
    match parcel {
        Parcel::Executions(all) => drop(all.pop()),
        Parcel::Signals(all) => drop(all.pop()),
        Parcel::Requests(all) => drop(all.pop()),
        Parcel::Outbox(all) => drop(all.pop()),
        Parcel::Tokens(all) => drop(all.pop()),
        Parcel::Controls(all) => drop(all.pop()),
    }
}

#[tokio::test]
async fn a_copy_that_is_not_equal_in_the_smallest_thing_is_an_error_and_is_not_served() {
    let faults: Vec<Fault> = vec![
        in_executions(|one| one.execution.rev += 1),
        in_executions(|one| one.execution.request_hash[15] ^= 1),
        in_executions(|one| one.execution.attempts = "other".into()),
        in_executions(|one| one.execution.needs_attention ^= true),
        in_executions(|one| one.execution.wake_at = None),
        in_executions(|one| one.parked = None),
        in_executions(|one| drop(one.records.pop())),
        in_executions(|one| one.records.iter_mut().for_each(|record| record.bytes = "x".into())),
        in_executions(|one| drop(one.attributes.pop())),
        in_executions(|one| one.tombstone = "x".into()),
        in_signals(|one| one.held = false),
        in_signals(|one| one.row.unchecked = true),
        in_signals(|one| one.row.received_at = at(77)),
        Box::new(|parcel| {
            if let Parcel::Tokens(all) = parcel {
                all.iter_mut().for_each(|one| one.expires_at = None);
            }
        }),
        in_events(|one| one.attempts += 1),
        in_events(|one| one.next_at = None),
        in_events(|one| one.data = crate::payload::Payload::null()),
        Box::new(|parcel| {
            if matches!(parcel, Parcel::Outbox(_)) {
                leaves_out(parcel)
            }
        }),
        Box::new(|parcel| {
            if matches!(parcel, Parcel::Executions(_)) {
                leaves_out(parcel)
            }
        }),
        Box::new(|parcel| {
            if matches!(parcel, Parcel::Signals(_)) {
                leaves_out(parcel)
            }
        }),
        Box::new(|parcel| {
            if matches!(parcel, Parcel::Requests(_)) {
                leaves_out(parcel)
            }
        }),
        Box::new(|parcel| {
            if matches!(parcel, Parcel::Tokens(_)) {
                leaves_out(parcel)
            }
        }),
        Box::new(|parcel| {
            if matches!(parcel, Parcel::Controls(_)) {
                leaves_out(parcel)
            }
        }),
        Box::new(|parcel| {
            if let Parcel::Controls(all) = parcel {
                all.iter_mut().for_each(|one| one.rev += 1);
            }
        }),
    ];
    for (number, fault) in faults.into_iter().enumerate() {
        let model = Arc::new(ModelStore::new(SHARDS));
        let (from, to) = (Side::of(model.clone()), Side::of(Arc::new(ModelStore::new(SHARDS))));
        fill(&from).await;
        model.request_start(request("asked-for"));
        let before = from.sum().await;
        let result = copy_by(from.portable.as_ref(), &Careless(to.portable.clone(), fault), 1).await;
        assert!(matches!(result, Err(CopyError::Unequal(_))), "fault {number}: {result:?}");
        assert!(from.is_servable().await && !to.is_servable().await, "fault {number}");
        assert_eq!(from.sum().await, before);
        copy(from.portable.as_ref(), to.portable.as_ref()).await.unwrap();
        assert_eq!(to.sum().await, before, "a sound copy mends it");
    }
}
