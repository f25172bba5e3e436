//! The side that has the store: a socket that only this user can reach, a thread that accepts, one for each connection.
//!
//! Steps of a start: a socket that a dead server left is removed, one that a server listens on is not; the new one is
//! bound and made the owner's alone. That can be done before there is a store; clients that connect meanwhile wait. A
//! client that connects must be this user too, or root: the kernel says which user it is.

use std::{
    collections::HashMap,
    fs, io,
    os::unix::{
        fs::{FileTypeExt, PermissionsExt},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};
use picaflor::Store;
use rustix::process::Uid;

use crate::{
    served::{Limits, Served},
    session,
    wire::welcome,
};

/// A server that runs; dropped, it stops as [`Server::stop`] does.
pub struct Server {
    shared: Arc<Shared>,
    path: PathBuf,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    served: Served,
    listener: UnixListener,
    sessions: Mutex<HashMap<u64, Arc<UnixStream>>>,
    ended: Condvar,
    next: AtomicU64,
}

impl Shared {
    fn new(store: Store, limits: Limits, listener: UnixListener) -> Self {
        Self {
            served: Served::new(store, limits),
            listener,
            sessions: Mutex::default(),
            ended: Condvar::new(),
            next: AtomicU64::new(0),
        }
    }
}

/// Serves a store to other processes of this user at a socket.
///
/// # Errors
/// As [`Socket::bind`].
pub fn serve(store: Store, socket: impl AsRef<Path>, limits: Limits) -> io::Result<Server> {
    Socket::bind(socket)?.serve(store, limits)
}

/// A socket that is taken, and where no client is served yet: to know that it can be before a store is
/// made. Dropped, it is removed.
pub struct Socket {
    path: PathBuf,
    listener: Option<UnixListener>,
}

impl Socket {
    /// Takes the socket.
    ///
    /// # Errors
    /// When it cannot be made: another server listens there, something that is no socket is there, the folder is not
    /// ours to write, the path is longer than the system's 107 bytes.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref().to_owned();
        let listener = Some(bind(&path)?);
        Ok(Self { path, listener })
    }

    /// As [`serve`], at this socket.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn serve(self, store: Store, limits: Limits) -> io::Result<Server> {
        let path = self.path.clone();
        let listener = self.into_listener().ok_or(io::ErrorKind::NotConnected)?;
        let shared = Arc::new(Shared::new(store, limits, listener));
        let accepting = Arc::clone(&shared);
        let acceptor = thread::Builder::new().name("picaflor-share".into()).spawn(move || accept(&accepting))?;
        Ok(Server { shared, path, acceptor: Some(acceptor) })
    }

    /// From here on the socket belongs to the owner of the listener.
    pub(crate) fn into_listener(mut self) -> Option<UnixListener> {
        self.listener.take()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.listener.take().is_some() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn bind(path: &Path) -> io::Result<UnixListener> {
    let say = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            return Err(say(io::Error::new(io::ErrorKind::AlreadyExists, "there is something that is no socket")));
        }
        Ok(_) if UnixStream::connect(path).is_ok() => {
            return Err(say(io::Error::new(io::ErrorKind::AddrInUse, "another server listens there")));
        }
        Ok(_) => fs::remove_file(path).map_err(say)?,
        Err(_) => {}
    }
    let listener = UnixListener::bind(path).map_err(say)?;
    // A client that connects before this is asked for its user all the same.
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(say)?;
    Ok(listener)
}

fn accept(shared: &Arc<Shared>) {
    while !shared.served.stopping.load(Relaxed) {
        match shared.listener.accept() {
            Ok((stream, _)) => admit(shared, stream),
            // Out of descriptors, or the peer has gone again: others may have better luck in a moment.
            Err(_) => thread::sleep(Duration::from_millis(20)),
        }
    }
}

fn admit(shared: &Arc<Shared>, stream: UnixStream) {
    let stream = Arc::new(stream);
    let number = shared.next.fetch_add(1, Relaxed);
    let answer = if !is_ours(&stream) {
        welcome::NOT_YOU
    } else {
        let mut sessions = shared.sessions.lock();
        // A stop that began meanwhile has looked at the map already, or sees this one.
        if sessions.len() >= shared.served.limits.connections || shared.served.stopping.load(Relaxed) {
            welcome::TOO_MANY
        } else {
            sessions.insert(number, Arc::clone(&stream));
            welcome::IN
        }
    };
    if answer != welcome::IN {
        return session::decline(&stream, answer);
    }
    let serving = Arc::clone(shared);
    let spawned = thread::Builder::new().name(format!("picaflor-share-{number}")).spawn(move || {
        // Also when the session panics: its place is free again, and no other session is touched.
        let _place = Place { shared: &serving, number };
        session::run(&serving.served, &stream);
    });
    if spawned.is_err() {
        drop(Place { shared, number });
    }
}

struct Place<'a> {
    shared: &'a Shared,
    number: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.shared.sessions.lock().remove(&self.number);
        self.shared.ended.notify_all();
    }
}

/// Whether the peer is the user whose store this is, or root, who could read it anyway.
fn is_ours(stream: &UnixStream) -> bool {
    let peer = rustix::net::sockopt::socket_peercred(stream);
    peer.is_ok_and(|peer| may_enter(peer.uid, rustix::process::geteuid()))
}

fn may_enter(peer: Uid, own: Uid) -> bool {
    peer == own || peer.is_root()
}

impl Server {
    /// The socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Connections at this moment.
    pub fn connections(&self) -> usize {
        self.shared.sessions.lock().len()
    }

    /// Takes no more clients and no more requests, lets answers that are under way end, and removes the socket. A
    /// client that has not taken its answer within [`Limits::drain`] is cut off. The store stays open, and is the
    /// caller's to close.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let Some(acceptor) = self.acceptor.take() else { return };
        self.shared.served.stopping.store(true, Relaxed);
        // Accepting then fails at once, and so does connecting.
        let _ = rustix::net::shutdown(&self.shared.listener, rustix::net::Shutdown::Read);
        let _ = acceptor.join();
        let _ = fs::remove_file(&self.path);
        let deadline = Instant::now() + self.shared.served.limits.drain;
        let mut sessions = self.shared.sessions.lock();
        for stream in sessions.values() {
            // A session that waits for a request reads the end; one that writes an answer goes on.
            let _ = stream.shutdown(std::net::Shutdown::Read);
        }
        while !sessions.is_empty() && !self.shared.ended.wait_until(&mut sessions, deadline).timed_out() {}
        for stream in sessions.values() {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
        // Their threads notice at their next read or write.
        let grace = Instant::now() + Duration::from_secs(1);
        while !sessions.is_empty() && !self.shared.ended.wait_until(&mut sessions, grace).timed_out() {}
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_and_root_may_enter() {
        let uid = Uid::from_raw;
        assert!(may_enter(uid(1000), uid(1000)) && may_enter(uid(0), uid(1000)));
        assert!(!may_enter(uid(1001), uid(1000)) && !may_enter(uid(1000), uid(0)));
        let (a, _b) = UnixStream::pair().unwrap();
        assert!(is_ours(&a));
    }
}
