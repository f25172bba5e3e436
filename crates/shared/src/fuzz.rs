//! What must hold whatever a peer sends: it is frames or a named reason, and the side that has the store answers in
//! frames and ends no other way than with the connection. `scripts/fuzz` looks for bytes that break this; what it kept
//! lies in `fuzz/corpus` and is replayed here as a test.

use std::{
    io::{Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    process,
    sync::LazyLock,
    time::Duration,
};

use picaflor::{Expiry, Options, Store};

use crate::{
    served::{Limits, Served},
    session,
    wire::{self, FRAME_MAX, Frame, HELLO},
};

/// One target: its name, and what must not panic.
pub type Target = (&'static str, fn(&[u8]));

/// The targets.
pub const TARGETS: &[Target] = &[("wire", wire), ("session", session)];

/// Frames, one after the other, with their lengths.
fn wire(bytes: &[u8]) {
    let (mut input, mut buffer) = (bytes, Vec::new());
    while wire::read(&mut input, &mut buffer).is_ok() {
        frame(&buffer);
        assert!(buffer.len() <= FRAME_MAX);
    }
    frame(bytes);
    if let Some(hello) = bytes.first_chunk() {
        assert_eq!(wire::version(hello) == Some(wire::VERSION), *hello == wire::hello());
    }
}

fn frame(bytes: &[u8]) {
    let Ok(found) = Frame::decode(bytes) else { return };
    let mut again = Vec::new();
    found.encode(&mut again);
    assert_eq!(Frame::decode(&again[4..]), Ok(found.clone()));
    // Numbers of kinds that came later are not kept, nor times of expiries that have none.
    let is_kept = match &found {
        Frame::Failed(..) => false,
        Frame::Put(head) => !matches!(head.expiry, Expiry::Default | Expiry::Never),
        _ => true,
    };
    assert!(!is_kept || again[4..] == *bytes, "{found:?}");
}

/// A server without its acceptor; its file has no name any more.
static SERVED: LazyLock<Served> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join(format!("picaflor-fuzz-session-{}", process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for the store");
    let options = Options::new(folder.join("store")).capacity(32 << 20).memory(8 << 20);
    let store = Store::open(options).expect("an empty store");
    std::fs::remove_dir_all(&folder).expect("the folder is ours");
    // An answer that no buffer takes ends the session, as for any client that reads nothing.
    Served::new(store, Limits::default().patience(Duration::from_millis(20)))
});

/// What a client sends after its hello, all of it at once.
fn session(bytes: &[u8]) {
    let (client, server) = UnixStream::pair().expect("two descriptors");
    let bytes = &bytes[..bytes.len().min(32 << 10)];
    (&client).write_all(&[&wire::hello(), bytes].concat()).expect("a socket's buffer takes that much");
    client.shutdown(Shutdown::Write).expect("it is open");
    session::run(&SERVED, &server);
    drop(server);
    let mut answer = Vec::new();
    (&client).read_to_end(&mut answer).expect("the other end was closed");
    assert_eq!(answer.get(..HELLO + 1), Some(&[&wire::hello()[..], &[wire::welcome::IN]].concat()[..]));
    let (mut input, mut buffer) = (&answer[HELLO + 1..], Vec::new());
    let mut rest = input.len();
    while wire::read(&mut input, &mut buffer).is_ok() {
        let found = Frame::decode(&buffer).expect("the server sends frames");
        let is_answer = matches!(
            found,
            Frame::Done
                | Frame::Answer(_)
                | Frame::Object(_)
                | Frame::Data(_)
                | Frame::Entry(_)
                | Frame::End
                | Frame::Failed(..)
        );
        assert!(is_answer, "{found:?}");
        rest = input.len();
    }
    assert!(rest == 0 || answer.len() > 64 << 10, "half a frame, and no side was slow");
    forget(bytes);
}

/// Deletes what a session may have put, so that the next one begins as this one did.
fn forget(mut input: &[u8]) {
    let mut buffer = Vec::new();
    while wire::read(&mut input, &mut buffer).is_ok() {
        if let Ok(Frame::Put(head)) = Frame::decode(&buffer) {
            let _ = SERVED.store.delete(head.key);
        }
    }
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpora_find_nothing() {
        super::replay::all(super::TARGETS);
    }
}
