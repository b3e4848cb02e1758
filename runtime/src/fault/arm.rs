//! What is armed on this thread.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use super::{Bug, Whim};

type Strikes = Box<dyn FnMut(Whim) -> bool>;

thread_local! {
    static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    static WHIMS: RefCell<Option<Strikes>> = const { RefCell::new(None) };
    static MEMORY: RefCell<BTreeMap<String, String>> = const { RefCell::new(BTreeMap::new()) };
}

/// Until it is dropped, this thread makes the mistake and follows the whims.
#[must_use]
pub struct Armed(());

/// Arms this thread; what was armed before is not any more.
pub fn arm(bug: Option<Bug>, whims: impl FnMut(Whim) -> bool + 'static) -> Armed {
    PLANTED.set(bug);
    WHIMS.set(Some(Box::new(whims)));
    MEMORY.take();
    Armed(())
}

impl Drop for Armed {
    fn drop(&mut self) {
        PLANTED.set(None);
        WHIMS.set(None);
    }
}

pub(super) fn is_planted(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

pub(super) fn recall(name: &str) -> Option<String> {
    MEMORY.with_borrow(|memory| memory.get(name).cloned())
}

pub(super) fn remember(name: &str, what: String) {
    MEMORY.with_borrow_mut(|memory| memory.insert(name.to_owned(), what));
}

pub(super) fn strikes(whim: Whim) -> bool {
    WHIMS.with_borrow_mut(|whims| whims.as_mut().is_some_and(|strikes| strikes(whim)))
}

#[cfg(test)]
mod tests {
    use super::super::{planted, whim};
    use super::*;

    #[test]
    fn what_is_armed_is_armed_on_this_thread_and_until_it_is_dropped() {
        let armed = arm(Some(Bug::NoEpochCheck), |whim| whim == Whim::TinyBatch);
        assert!(planted(Bug::NoEpochCheck) && !planted(Bug::AckBeforeCommit));
        assert!(whim(Whim::TinyBatch) && !whim(Whim::WheelOff));
        assert!(std::thread::spawn(|| !planted(Bug::NoEpochCheck) && !whim(Whim::TinyBatch)).join().unwrap());
        drop(armed);
        assert!(!planted(Bug::NoEpochCheck) && !whim(Whim::TinyBatch));
    }
}
