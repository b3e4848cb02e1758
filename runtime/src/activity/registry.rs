//! The activities that a program offers, by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;

use super::{Activity, ActivityContext, ActivityFailure, ActivityOptions};
use crate::payload::{InvalidField, Payload};

/// An activity without its types: what the dispatcher calls.
#[async_trait]
pub trait ErasedActivity: Send + Sync + 'static {
    /// Its options.
    fn options(&self) -> ActivityOptions;

    /// Checks a result that a person gives in the activity's place.
    ///
    /// # Errors
    /// The field that is not as it must be.
    fn check_output(&self, result: &Payload) -> Result<(), InvalidField>;

    /// One attempt.
    async fn execute(&self, ctx: &ActivityContext, input: Payload) -> Result<Payload, ActivityFailure>;
}

struct Erased<A>(A);

#[async_trait]
impl<A: Activity> ErasedActivity for Erased<A> {
    fn options(&self) -> ActivityOptions {
        self.0.options()
    }

    fn check_output(&self, result: &Payload) -> Result<(), InvalidField> {
        result.parse::<A::Output>().map(|_| ())
    }

    async fn execute(&self, ctx: &ActivityContext, input: Payload) -> Result<Payload, ActivityFailure> {
        let input = input.parse().map_err(|error| {
            ActivityFailure::permanent("input", format!("this program cannot read the recorded input: {error}"))
        })?;
        let output = self.0.execute(ctx, input).await?;
        Payload::of(&output).map_err(|error| ActivityFailure::permanent("result", format!("the result is not JSON: {error}")))
    }
}

/// The activities of a program.
#[derive(Clone, Default)]
pub struct ActivityRegistry {
    by_name: BTreeMap<String, Arc<dyn ErasedActivity>>,
}

impl ActivityRegistry {
    /// Adds an activity under its own name. A later one of the same name replaces an earlier one.
    pub fn register<A: Activity>(&mut self, activity: A) {
        self.register_as(A::NAME, activity);
    }

    /// Adds an activity under another name, as configured steps need it.
    pub fn register_as<A: Activity>(&mut self, name: &str, activity: A) {
        self.by_name.insert(name.to_owned(), Arc::new(Erased(activity)));
    }

    /// The activity of this name.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn ErasedActivity>> {
        self.by_name.get(name)
    }

    /// Puts something around every activity.
    #[cfg(any(test, feature = "test-util"))]
    pub(crate) fn wrap(&mut self, around: impl Fn(&str, Arc<dyn ErasedActivity>) -> Arc<dyn ErasedActivity>) {
        for (name, activity) in &mut self.by_name {
            *activity = around(name, Arc::clone(activity));
        }
    }

    /// The names of all activities, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }
}
