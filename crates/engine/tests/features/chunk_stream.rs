//! The chunks of an object as a stream of futures' kind.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use futures_core::Stream;
use picaflor::{ChunkStream, Mode, Store, device::MemoryDevice};
use picaflor_sim::{Fault, FaultyDevice, Rule};

use crate::common::{MIB, body, by_hand, bypass, counted};

fn read(mut chunks: ChunkStream) -> Vec<picaflor::Result<bytes::Bytes>> {
    futures_executor::block_on(async {
        let mut pieces = Vec::new();
        while let Some(piece) = poll_fn(|context| Pin::new(&mut chunks).poll_next(context)).await {
            pieces.push(piece);
        }
        // It stays at its end.
        assert!(poll_fn(|context| Pin::new(&mut chunks).poll_next(context)).await.is_none());
        pieces
    })
}

#[test]
fn a_stream_has_the_pieces_of_the_iterator() {
    let (_, options) = counted(32 * MIB);
    let store = Store::open(options).unwrap();
    for len in [0, 3000, 500_000] {
        let whole = body(1, len);
        store.put_with(b"key", &whole, &bypass()).unwrap();
        let object = store.get(b"key").unwrap().unwrap();
        for range in [0..u64::MAX, 100..2000, 70_000..400_000] {
            let expected: Vec<_> = object.chunks(range.clone()).map(|piece| piece.unwrap()).collect();
            let found: Vec<_> =
                read(object.chunks(range.clone()).into_stream()).into_iter().map(|piece| piece.unwrap()).collect();
            assert!(found == expected, "{len}, {range:?}");
        }
    }
    // What is in memory is there at once.
    store.put(b"small", b"body").unwrap();
    let mut small = store.get(b"small").unwrap().unwrap().chunks(0..9).into_stream();
    let polled = Pin::new(&mut small).poll_next(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(polled, Poll::Ready(Some(Ok(piece))) if piece == b"body"[..]));
}

#[test]
fn a_stream_ends_with_the_first_error() {
    let faulty = FaultyDevice::new(Arc::new(MemoryDevice::new(32 * MIB)), 1);
    let options = by_hand(Arc::new(faulty.clone())).mode(Mode::Store);
    let store = Store::open(options.clone()).unwrap();
    store.put(b"key", &body(1, 500_000)).unwrap();
    store.close().unwrap();
    let store = Store::open(options).unwrap();
    let chunks = store.get(b"key").unwrap().unwrap().chunks(0..u64::MAX).into_stream();
    faulty.add(Rule::nth(Fault::ReadError, 3));
    let pieces: Vec<_> = read(chunks).iter().map(Result::is_ok).collect();
    assert_eq!(pieces.iter().filter(|is_ok| !**is_ok).count(), 1, "{pieces:?}");
    assert!(pieces.len() < 500_000 / (64 << 10) && pieces.last() == Some(&false), "{pieces:?}");
}
