//! What strikes, and when: nodes, the database, the services, the clocks.

use std::sync::Arc;
use std::time::Duration;

use overdue_runtime::simulation::{Dice, Process, Strike};

use crate::world::World;

/// The most steps that a strike waits for, so that it meets a node in the middle of something.
const STEPS_MAX: u64 = 60;
/// The services that may be gone.
const SERVICES: [&str; 4] = ["orders", "stock", "coupons", "payments"];

/// Begins everything that this seed has.
pub(crate) fn begin(world: &Arc<World>) {
    let strikes = world.swarm.strikes;
    repeat(world, strikes.kill, |world, dice| {
        let place = world.any_place(dice);
        let steps = u32::try_from(dice.below(STEPS_MAX)).unwrap();
        let down_for = dice.up_to(world.swarm.lease * 2);
        world.note("node killed");
        world.cluster.strike_after(place, steps, Strike::Kill);
        start_again(world, place, down_for);
    });
    repeat(world, strikes.freeze, |world, dice| {
        let place = world.any_place(dice);
        let steps = u32::try_from(dice.below(STEPS_MAX)).unwrap();
        let frozen_for = dice.time_between(world.swarm.lease / 10, world.swarm.lease * 5);
        world.note("node frozen");
        world.cluster.strike_after(place, steps, Strike::Freeze);
        let thawed = Arc::clone(world);
        world.simulation.spawn(Process::WORLD, async move {
            thawed.simulation.sleep(frozen_for).await;
            thawed.cluster.thaw(place);
        });
    });
    repeat(world, strikes.drain, |world, dice| {
        let place = world.any_place(dice);
        let down_for = dice.up_to(world.swarm.lease);
        world.note("node drained");
        let drained = Arc::clone(world);
        world.simulation.spawn(Process::WORLD, async move {
            drained.cluster.drain(place).await;
            start_again(&drained, place, down_for);
        });
    });
    repeat(world, strikes.database, |world, dice| {
        world.note("database restarted");
        world.cluster.database().restart(dice.up_to(Duration::from_secs(15)));
    });
    repeat(world, strikes.service, |world, dice| {
        world.note("service gone");
        let service = dice.pick(&SERVICES).unwrap();
        world.street.close_service(service, dice.up_to(Duration::from_secs(40)));
    });
    repeat(world, strikes.clock, |world, dice| {
        let place = world.any_place(dice);
        let by = i64::try_from(dice.below(600_000_000)).unwrap() - 300_000_000;
        world.note("clock set");
        if by < 0 && world.cluster.is_up(place) {
            world.judge.reach("clock set back");
        }
        world.cluster.step_clock(place, by);
    });
}

/// Does something again and again until trouble ends; `mean` is how long it waits in the mean.
fn repeat(world: &Arc<World>, mean: Option<Duration>, strike: impl Fn(&Arc<World>, &Dice) + Send + 'static) {
    let (Some(mean), world) = (mean, Arc::clone(world)) else { return };
    let dice = world.simulation.dice();
    let simulation = world.simulation.clone();
    simulation.spawn(Process::WORLD, async move {
        loop {
            world.simulation.sleep(dice.up_to(mean * 2)).await;
            if world.is_calm() {
                return;
            }
            strike(&world, &dice);
        }
    });
}

fn start_again(world: &Arc<World>, place: usize, after: Duration) {
    let again = Arc::clone(world);
    world.simulation.spawn(Process::WORLD, async move {
        again.simulation.sleep(after).await;
        if again.cluster.is_dead(place) {
            again.cluster.start(place);
        }
    });
}
