//! How many sends of a downstream are under way at once, whatever the call.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tower::ServiceExt;

use super::{Around, Next, Reply};
use crate::call::Request;

pub(crate) struct ConcurrencyLimit(Arc<Semaphore>);

impl ConcurrencyLimit {
    pub(crate) fn new(limit: usize) -> Self {
        Self(Arc::new(Semaphore::new(limit)))
    }
}

impl Around for ConcurrencyLimit {
    async fn around<S: Next>(&self, request: Request, next: S) -> Reply {
        let _permit = self.0.acquire().await.expect("the semaphore is never closed");
        next.oneshot(request).await
    }
}
