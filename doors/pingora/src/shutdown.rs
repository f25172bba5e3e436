//! What was put last is made durable when Pingora shuts down.

use async_trait::async_trait;
use pingora_core::{server::ShutdownWatch, services::background::BackgroundService};

use crate::Picaflor;

/// For `background_service("picaflor", storage)`: flushes when the server is told to shut down. What comes while it
/// drains is durable within the store's own bound.
#[async_trait]
impl BackgroundService for &'static Picaflor {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        // An error means that nothing is left that could tell, which is the end as well.
        let _ = shutdown.changed().await;
        match self.store().flush_async().await {
            Ok(()) => log::info!("picaflor: everything is durable"),
            Err(error) => log::error!("picaflor: what was put last may be lost: {error}"),
        }
    }
}
