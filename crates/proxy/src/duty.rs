//! Long work beside requests takes a fifth of the time of one thread and one device.

use std::time::Duration;

/// For so many times of the work it rests.
const REST: u32 = 4;
/// Shortest rest that is worth it.
const NAP: Duration = Duration::from_millis(2);

/// The rest that is owed.
#[derive(Default)]
pub(crate) struct Duty(Duration);

impl Duty {
    /// Rests, once enough of it is owed; where there is no time, others get their turn.
    pub(crate) async fn rest(&mut self, worked: Duration, hurry: impl Fn() -> bool) {
        self.0 += worked * REST;
        if self.0 < NAP {
            return;
        }
        let owed = std::mem::take(&mut self.0);
        if hurry() { tokio::task::yield_now().await } else { tokio::time::sleep(owed).await }
    }
}
