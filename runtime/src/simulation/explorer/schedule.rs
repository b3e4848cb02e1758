//! Schedules: what was chosen wherever there was a choice.

use std::fmt;
use std::str::FromStr;

use crate::simulation::dice::Dice;

/// Something that goes wrong in a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// A call fails, and nothing of it was done.
    FailsBeforeEffect,
    /// A call is done and seems to have failed.
    UnknownAfterEffect,
    /// A call is made twice.
    Twice,
    /// A signal is delivered again.
    DeliveredAgain,
    /// The node ends between two steps.
    Crash,
    /// The node ends, and the commit that it asked for is not made.
    CrashBeforeCommit,
    /// The node ends behind a commit, before it hears of it.
    CrashAfterCommit,
}

/// Choices in their order; where they end, the first of what is offered is taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Schedule(Vec<usize>);

impl Schedule {
    pub(super) fn parse(text: &str) -> Self {
        Self(text.split('.').filter_map(|part| usize::from_str(part.trim()).ok()).collect())
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&text.join("."))
    }
}

/// One choice: which of how many, of which the first `plain` are no faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Choice {
    chosen: usize,
    plain: usize,
    faults: usize,
}

/// The choices of a schedule that was played.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Taken(Vec<Choice>);

impl Taken {
    pub(super) fn schedule(&self) -> Schedule {
        Schedule(self.0.iter().map(|choice| choice.chosen).collect())
    }

    /// The order that follows, depth first; faults left out.
    pub(super) fn next_order(&self) -> Option<Schedule> {
        let at = self.0.iter().rposition(|choice| choice.chosen + 1 < choice.plain)?;
        let mut next: Vec<usize> = self.0[..at].iter().map(|choice| choice.chosen).collect();
        next.push(self.0[at].chosen + 1);
        Some(Schedule(next))
    }

    /// This order with each fault at each place where it could strike.
    pub(super) fn with_one_fault(&self) -> impl Iterator<Item = Schedule> + '_ {
        self.0.iter().enumerate().flat_map(move |(at, choice)| {
            (0..choice.faults).map(move |fault| {
                let mut one: Vec<usize> = self.0[..at].iter().map(|choice| choice.chosen).collect();
                one.push(choice.plain + fault);
                Schedule(one)
            })
        })
    }
}

/// What a schedule that is being played chooses.
pub(super) struct Plan {
    schedule: Schedule,
    /// Where the schedule ends: the first of what is offered, or a random one.
    dice: Option<Dice>,
    /// How many faults may still strike.
    faults: usize,
    taken: Taken,
}

impl Plan {
    pub(super) fn of(schedule: Schedule, faults: usize) -> Self {
        Self { schedule, dice: None, faults, taken: Taken::default() }
    }

    pub(super) fn drawn(seed: u64, faults: usize) -> Self {
        Self { schedule: Schedule::default(), dice: Some(Dice::new(seed)), faults, taken: Taken::default() }
    }

    /// Chooses one of `plain` plain things and `faults` faults; the faults come behind the plain things.
    pub(super) fn choose(&mut self, plain: usize, faults: usize) -> usize {
        let offered = plain + if self.faults > 0 { faults } else { 0 };
        let drawn = self.dice.as_ref().map(|dice| usize::try_from(dice.below(offered as u64)).unwrap_or(0));
        let wanted = self.schedule.0.get(self.taken.0.len()).copied().or(drawn).unwrap_or(0);
        let chosen = wanted.min(offered.saturating_sub(1));
        self.faults -= usize::from(chosen >= plain);
        self.taken.0.push(Choice { chosen, plain, faults });
        chosen
    }

    pub(super) fn taken(&self) -> Taken {
        self.taken.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_come_depth_first_and_end() {
        let mut seen = Vec::new();
        let mut next = Some(Schedule::default());
        while let Some(schedule) = next {
            let mut plan = Plan::of(schedule, 0);
            let first = plan.choose(2, 3);
            if first == 0 {
                plan.choose(3, 0);
            }
            seen.push(plan.taken().schedule().to_string());
            next = plan.taken().next_order();
        }
        assert_eq!(seen, ["0.0", "0.1", "0.2", "1"]);
    }

    #[test]
    fn each_fault_strikes_each_place_once() {
        let mut plan = Plan::of(Schedule::default(), 0);
        plan.choose(1, 2);
        plan.choose(2, 1);
        let with_one: Vec<String> = plan.taken().with_one_fault().map(|schedule| schedule.to_string()).collect();
        assert_eq!(with_one, ["1", "2", "0.2"]);
    }

    #[test]
    fn when_its_faults_are_spent_a_plan_offers_no_more() {
        let mut plan = Plan::of(Schedule::parse("1.1"), 1);
        assert_eq!(plan.choose(1, 1), 1);
        assert_eq!(plan.choose(1, 1), 0);
    }
}
