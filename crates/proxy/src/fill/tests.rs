//! How long a fetch waits for its readers, in virtual time.

use std::{future::poll_fn, sync::Arc, time::Duration};

use bytes::Bytes;
use picaflor::{Options, Store, device::MemoryDevice};

use super::{Bounds, Budget, Fill, Next};

const PIECES: usize = 100;
const PAUSE: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_secs(1);

/// A reader that stops between two reads reads several pieces in a row then, and the other has no time to follow
/// between them. All the same the other has waited for it.
#[tokio::test(start_paused = true)]
async fn a_reader_that_comes_in_bursts_is_left_behind_when_it_has_held_up_others_for_long() {
    let store = Store::open(Options::on(Arc::new(MemoryDevice::new(64 << 20))).memory(16 << 20)).unwrap();
    let bounds = Bounds { budget: Budget::new(0), window: 40, near: 0 };
    let fill = Fill::new(b"key".to_vec(), &bounds, store.reserve());
    let mut slow = fill.join().unwrap();
    let mut quick = fill.join().unwrap();
    let filler = async {
        let begun = tokio::time::Instant::now();
        let mut dropped = 0;
        for _ in 0..PIECES {
            fill.push(Bytes::from_static(b"piece"));
            dropped += fill.room(PATIENCE).await.dropped;
        }
        fill.end(Ok(()), true);
        (dropped, begun.elapsed())
    };
    let in_bursts = async {
        loop {
            tokio::time::sleep(PAUSE).await;
            for _ in 0..6 {
                match poll_fn(|cx| slow.poll(cx, false)).await {
                    Next::Bytes(_) => tokio::task::yield_now().await,
                    _ => return,
                }
            }
        }
    };
    let as_it_comes = async {
        while let Next::Bytes(_) = poll_fn(|cx| quick.poll(cx, false)).await {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let ((dropped, took), (), ()) = tokio::join!(filler, in_bursts, as_it_comes);
    assert!(dropped >= 1);
    assert!(took < 3 * PATIENCE, "{took:?}");
}
