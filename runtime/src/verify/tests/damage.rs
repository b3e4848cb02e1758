//! x
use std::time::Duration;

use super::world::{Patient, World, code};
use crate::store::Store;
use crate::verify::{Options, everything};

#[tokio::test]
async fn nothing_is_found_in_a_store_with_executions_in_every_state() {
    let world = World::full().await;
    let options = Options { workflow_type: None, patience: Duration::from_secs(2) };
    let report = everything(world.store.as_ref() as &dyn Store, &code(), &Patient(world.clock.clone()), &options).await.unwrap();
    assert_eq!(report.violations, []);
}
