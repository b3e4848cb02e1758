//! Who should own what: computed by every node alike from what all of them see. Pure.
//!
//! An even spread: the shards of nodes whose number differs by at most one. Only what is over the spread moves, and only
//! its present owner moves it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::store::{Member, Membership, Owner};

/// A shard that has been free for longer is claimed by any node that sees it, whoever's share it is.
const FREE_MAX: Duration = Duration::from_secs(2);
/// While a database that was just restarted is found again by its nodes, at most so many of the shards that came free since
/// are claimed at once.
const CLAIMED_AFTER_RESTART_MAX: usize = 8;

/// What a node does next.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Nodes to be ended.
    pub(super) dead: Vec<String>,
    /// How many free shards to claim.
    pub(super) claim: usize,
    /// Own shards to be given to others.
    pub(super) give: Vec<(u16, String)>,
}

/// What `node_id` does about what it sees. `restarted` tells that the database came up a short while ago.
pub(super) fn plan(seen: &Membership, node_id: &str, restarted: bool) -> Plan {
    let others_dead = seen.members.iter().filter(|member| !member.alive && member.node_id != node_id);
    let dead = others_dead.map(|member| member.node_id.clone()).collect();
    let mut owned = owned_by_living(&seen.members, node_id);
    let mut free = Vec::new();
    for (shard, owner) in (0u16..).zip(&seen.owners) {
        match owner {
            Owner::Nobody(since) => free.push(*since),
            Owner::Node(owner) => {
                if let Some(shards) = owned.get_mut(owner.as_str()) {
                    shards.push(shard);
                }
            }
        }
    }
    let targets = targets(&owned, seen.owners.len());
    let own = owned.get(node_id).map_or(0, Vec::len);
    let missing = targets.get(node_id).copied().unwrap_or(0).saturating_sub(own);
    let long_free = free.iter().filter(|since| **since > FREE_MAX).count();
    // What was nobody's before has nobody who might come back to it.
    let nobodys = free.iter().filter(|since| **since > seen.up).count();
    let most = if restarted { nobodys + CLAIMED_AFTER_RESTART_MAX } else { usize::MAX };
    Plan { dead, claim: missing.max(long_free).min(free.len()).min(most), give: gifts(&owned, &targets, node_id) }
}

fn owned_by_living<'a>(members: &'a [Member], node_id: &'a str) -> BTreeMap<&'a str, Vec<u16>> {
    let living = members.iter().filter(|member| member.alive || member.node_id == node_id);
    living.map(|member| (member.node_id.as_str(), Vec::new())).collect()
}

/// How many shards each node should have. Who has most keeps the odd ones, so that nothing moves without need.
fn targets<'a>(owned: &BTreeMap<&'a str, Vec<u16>>, shards: usize) -> BTreeMap<&'a str, usize> {
    let nodes = owned.len().max(1);
    let mut by_number: Vec<(&str, usize)> = owned.iter().map(|(node, shards)| (*node, shards.len())).collect();
    by_number.sort_by(|(node, shards), (other, others)| others.cmp(shards).then(node.cmp(other)));
    let with_one_more = shards % nodes;
    let share = |(place, (node, _)): (usize, (&'a str, usize))| (node, shards / nodes + usize::from(place < with_one_more));
    by_number.into_iter().enumerate().map(share).collect()
}

/// The shards over the target of each node, in order, to the nodes below theirs, in order; those of `node_id`.
fn gifts(owned: &BTreeMap<&str, Vec<u16>>, targets: &BTreeMap<&str, usize>, node_id: &str) -> Vec<(u16, String)> {
    let surplus = owned.iter().flat_map(|(node, shards)| shards.iter().skip(targets[node]).map(|shard| (*node, *shard)));
    let wanted = owned.iter().flat_map(|(node, shards)| std::iter::repeat_n(*node, targets[node].saturating_sub(shards.len())));
    surplus.zip(wanted).filter(|((giver, _), _)| *giver == node_id).map(|((_, shard), taker)| (shard, taker.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SHARDS: u16 = 64;

    fn seen(alive: &[(&str, bool)], owners: Vec<Owner>) -> Membership {
        let members = alive.iter().map(|(node_id, alive)| Member {
            node_id: (*node_id).to_owned(),
            url: None,
            secret: String::new(),
            alive: *alive,
        });
        Membership { now: None, up: Duration::MAX, members: members.collect(), owners }
    }

    fn node(name: &str) -> Owner {
        Owner::Node(name.to_owned())
    }

    /// Every node does what it plans, from one view.
    fn round(seen: &mut Membership) {
        let living: Vec<String> =
            seen.members.iter().filter(|member| member.alive).map(|member| member.node_id.clone()).collect();
        let plans: Vec<(String, Plan)> = living.iter().map(|me| (me.clone(), plan(seen, me, false))).collect();
        for (me, plan) in plans {
            for dead in plan.dead {
                seen.members.retain(|member| member.node_id != dead);
                seen.owners.iter_mut().filter(|owner| owner.is(&dead)).for_each(|owner| *owner = Owner::Nobody(Duration::ZERO));
            }
            for (shard, taker) in plan.give {
                assert!(seen.owners[usize::from(shard)].is(&me), "only what it owns");
                seen.owners[usize::from(shard)] = Owner::Node(taker);
            }
            let free = seen.owners.iter_mut().filter(|owner| matches!(owner, Owner::Nobody(_)));
            free.take(plan.claim).for_each(|owner| *owner = Owner::Node(me.clone()));
        }
    }

    fn numbers(seen: &Membership) -> Vec<usize> {
        let of = |node_id: &str| seen.owners.iter().filter(|owner| owner.is(node_id)).count();
        seen.members.iter().map(|member| of(&member.node_id)).collect()
    }

    #[test]
    fn the_first_node_claims_everything() {
        let seen = seen(&[("a", true)], vec![Owner::Nobody(Duration::ZERO); SHARDS.into()]);
        assert_eq!(plan(&seen, "a", false), Plan { claim: SHARDS.into(), ..Plan::default() });
    }

    #[test]
    fn a_new_node_is_given_its_share_and_no_other_shard_moves() {
        let mut seen = seen(&[("a", true), ("b", true), ("c", true)], vec![node("a"); 32]);
        seen.owners.extend(vec![node("b"); 32]);
        let before = seen.owners.clone();
        round(&mut seen);
        assert_eq!(numbers(&seen), [22, 21, 21]);
        assert_eq!(before.iter().zip(&seen.owners).filter(|(before, after)| before != after).count(), 21);
    }

    #[test]
    fn the_shards_of_a_dead_node_are_shared_by_the_living() {
        let mut owners = vec![node("a"); 22];
        owners.extend(vec![node("b"); 21]);
        owners.extend(vec![node("c"); 21]);
        let mut seen = seen(&[("a", true), ("b", false), ("c", true)], owners);
        round(&mut seen);
        round(&mut seen);
        assert_eq!(numbers(&seen), [32, 32]);
    }

    #[test]
    fn what_nobody_claims_for_long_is_claimed_by_whoever_sees_it() {
        let seen = seen(&[("a", true), ("b", true)], vec![Owner::Nobody(Duration::from_secs(3)); 4]);
        assert_eq!(plan(&seen, "a", false).claim, 4);
    }

    #[test]
    fn after_a_restart_of_the_database_shards_are_claimed_a_few_at_a_time() {
        let mut seen = seen(&[("a", true)], vec![Owner::Nobody(Duration::from_secs(3)); SHARDS.into()]);
        seen.up = Duration::from_secs(5);
        assert_eq!(plan(&seen, "a", true).claim, 8);
        // Those that were free before the restart already have nobody who might come back.
        seen.owners[..10].fill(Owner::Nobody(Duration::from_secs(6)));
        assert_eq!(plan(&seen, "a", true).claim, 18);
    }

    #[test]
    fn a_node_takes_its_own_late_lease_for_no_death() {
        let seen = seen(&[("a", false), ("b", false)], vec![node("a"); 4]);
        assert_eq!(plan(&seen, "a", false), Plan { dead: vec!["b".into()], ..Plan::default() });
    }

    proptest! {
        #[test]
        fn from_any_spread_an_even_one_is_reached_in_two_rounds_and_kept(
            alive in prop::collection::vec(any::<bool>(), 1..6),
            owners in prop::collection::vec(0usize..7, 1..80),
        ) {
            prop_assume!(alive.iter().any(|alive| *alive));
            let names = ["a", "b", "c", "d", "e", "f"];
            let members: Vec<(&str, bool)> = names.into_iter().zip(alive).collect();
            let owner = |number: usize| members.get(number).map_or(Owner::Nobody(Duration::ZERO), |(name, _)| node(name));
            let mut seen = seen(&members, owners.into_iter().map(owner).collect());
            for _ in 0..3 {
                round(&mut seen);
            }
            let numbers = numbers(&seen);
            prop_assert_eq!(numbers.iter().sum::<usize>(), seen.owners.len());
            prop_assert!(numbers.iter().max().unwrap() - numbers.iter().min().unwrap() <= 1, "{:?}", numbers);
            let settled = seen.clone();
            round(&mut seen);
            prop_assert_eq!(settled, seen);
        }
    }
}
