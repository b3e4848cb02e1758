//! The whole of a model at one moment, to be put back: what a failover that lost a tail does to its users.

use super::ModelStore;
use super::state::State;

/// See the module.
pub struct Image(State);

impl ModelStore {
    /// What is stored now.
    pub fn image(&self) -> Image {
        Image(self.lock().state.clone())
    }

    /// Puts an earlier image in the place of what is stored: whatever was acknowledged since is lost.
    pub fn lose_tail(&self, image: Image) {
        self.lock().state = image.0;
    }
}
