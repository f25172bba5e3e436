//! The proxy as a whole: starting and stopping.
//!
//! Starting: take every address, open the store, listen, then start the workers, so that no store is made for a proxy
//! that cannot be, and a client that can connect is served. Stopping: no new connections; then those that are idle
//! close, those that are answering finish, at most for `limits.drain`; then the log is flushed and the store closed,
//! which writes its checkpoint.

use picaflor::Store;
use std::{
    io,
    net::{SocketAddr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::JoinHandle,
    time::Instant,
};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{
    admin,
    config::{self, Config, ConfigError, Low},
    connections::Connections,
    fills::Fills,
    handed::Handed,
    lifecycle::{LAST_REQUESTS, StartError, Stop},
    listen::{self, Bound, Sockets},
    log::Log,
    mirrors::Mirrors,
    origin_tls::OriginTls,
    proxy::Proxy,
    purge::sequence::Purges,
    reload::{Reload, ReloadError},
    rules::validate,
    ruleset::Rules,
    silent::Silent,
    target::Origins,
    tls::Tls,
    turns::Turns,
    unshared::Unshared,
    users::Accounts,
};

/// A running proxy.
pub struct Server {
    proxy: Arc<Proxy>,
    stop: watch::Sender<Stop>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    listen: Vec<SocketAddr>,
    by_tls: Vec<SocketAddr>,
    admin: SocketAddr,
    token_file: Option<std::path::PathBuf>,
}

impl Server {
    /// Opens the store, listens, and serves.
    pub fn start(config: Config) -> Result<Self, StartError> {
        Self::start_at(config, Vec::new())
    }

    /// As [`Server::start`] at sockets that listen already, each at an address that the configuration names, such as
    /// those of a service manager: clients that come before this has started wait there. Addresses of the
    /// configuration that are not among them are bound.
    pub fn start_at(config: Config, sockets: Vec<TcpListener>) -> Result<Self, StartError> {
        raise_descriptors();
        let mut handed = Handed::new(sockets)?;
        let of_tls = config.tls.as_ref().map_or(&[][..], |tls| &tls.listen);
        let sockets = listen::bind_all(&[&config.listen, of_tls].concat(), config.workers, &mut handed)?;
        let admin_socket = listen::bind_one(config.admin.listen, &mut handed)?;
        handed.all_taken()?;
        let log =
            Log::open(&config.log, config.store.mode()).map_err(|e| StartError::File(config.log.to.clone(), e))?;
        let tls = config.tls.as_ref().map(Tls::new).transpose().map_err(|bad| StartError::Setting(bad.why))?;
        let origin_tls = OriginTls::new(&config.origin).map_err(|(_, why)| StartError::Setting(why))?;
        let accounts = Accounts::read(config.forward.users.as_deref(), &config.forward.access)
            .map_err(|(key, why)| StartError::Setting(format!("{key}: {why}")))?;
        let (token, token_file) = admin::token(&config.admin)?;
        let rules = config::rules(&config.rule, &config.cache).map_err(|bad| StartError::Setting(bad.to_string()))?;
        let store = open_store(&config)?;
        let admin = admin_socket.address()?;
        let mut listen = sockets[0].iter().map(Bound::address).collect::<Result<Vec<_>, _>>()?;
        let admin_socket = admin_socket.listen()?;
        let plain = config.listen.len();
        let listening = |(n, socket): (usize, Bound)| Ok((socket.listen()?, n >= plain));
        let sockets: Vec<Vec<_>> = sockets
            .into_iter()
            .map(|of_worker| of_worker.into_iter().enumerate().map(listening).collect())
            .collect::<Result<_, StartError>>()?;
        let own: Arc<[SocketAddr]> = listen.iter().copied().chain([admin]).collect();
        let by_tls = listen.split_off(plain);
        let speaks_http3 = config.tls.as_ref().is_some_and(|tls| tls.http3);
        let at_http3 = if speaks_http3 { &by_tls[..] } else { &[] };
        let datagrams = listen::bind_datagrams(at_http3, config.workers)?;
        let pseudonym = format!("picaflor-{:08x}", rand::random::<u32>());
        let proxy = Arc::new(Proxy {
            origins: Origins::new(&config.origin),
            connections: Arc::new(Connections::new(config.workers, config.limits.connections_per_client)),
            silent: Arc::new(Silent::new(config.limits.origin_pause.0)),
            turns: Arc::new(Turns::new(&config.limits)),
            // Of the store's memory an eighth.
            fills: Fills::new(&config.cache, config.store.memory.0 / 8, store.clone()),
            // And another.
            mirrors: Arc::new(Mirrors::new(config.store.memory.0 / 8, store.clone())),
            purges: Arc::new(Purges::new(&store)),
            counters: (0..config.workers).map(|_| Arc::default()).collect(),
            via: validate::text(format!("1.1 {pseudonym}")),
            unshared: Unshared::new(),
            tls,
            by_http3: at_http3.first().map(|at| validate::text(format!("h3=\":{}\"; ma=86400", at.port()))),
            origin_tls: Arc::new(origin_tls),
            reload: Reload::default(),
            rules: Rules::new(rules),
            accounts,
            started: Instant::now(),
            stopping: AtomicBool::new(false),
            pseudonym,
            store,
            log,
            own,
            admin,
            token,
            config,
        });
        let (stop, stopped) = watch::channel(Stop::Not);
        let mut threads = Vec::new();
        for (n, (streams, datagrams)) in sockets.into_iter().zip(datagrams).enumerate() {
            let (proxy, stopped) = (proxy.clone(), stopped.clone());
            let sockets = Sockets { streams, datagrams };
            threads.push(spawn(format!("picaflor-{n}"), move || listen::work(proxy, n, sockets, stopped))?);
        }
        let shared = proxy.clone();
        threads.push(spawn("picaflor-admin".into(), move || admin::work(shared, admin_socket, stopped))?);
        Ok(Self { proxy, stop, threads: Mutex::new(threads), listen, by_tls, admin, token_file })
    }

    /// Where clients connect.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.listen
    }

    /// Where those connect that come by TLS.
    pub fn tls_addresses(&self) -> &[SocketAddr] {
        &self.by_tls
    }

    #[cfg(test)]
    pub(crate) fn proxy(&self) -> &Arc<Proxy> {
        &self.proxy
    }

    /// Where the admin listener is.
    pub fn admin_address(&self) -> SocketAddr {
        self.admin
    }

    /// The file in which the admin token was found or left; `None` when it was configured.
    pub fn token_file(&self) -> Option<&std::path::Path> {
        self.token_file.as_deref()
    }

    /// What opening the store kept, dropped, and why.
    pub fn receipt(&self) -> String {
        self.proxy.store.receipt().to_string()
    }

    /// How the device is driven.
    pub fn backend(&self) -> Option<String> {
        let stats = self.proxy.store.stats();
        stats.volumes.first().map(|volume| format!("{}, {}", volume.place, volume.backend))
    }

    /// Why the store takes no more writes, if it does not: requests are answered all the same.
    pub fn store_failure(&self) -> Option<String> {
        self.proxy.store.stats().volumes.into_iter().find_map(|volume| volume.failed)
    }

    /// Has [`Server::reload`], and `POST /reload` of the admin listener, ask `source` for the configuration. `running`
    /// is what it said when this server was started.
    pub fn reload_from(&self, running: Low, source: impl Fn() -> Result<Low, ConfigError> + Send + Sync + 'static) {
        self.proxy.reload.from(running, Box::new(source));
    }

    /// Takes new certificates and keys, or nothing; connections go on. Without a source the files are read anew that
    /// the configuration names. Says what was taken.
    ///
    /// # Errors
    /// What is new cannot be read, would not do, or has changes that only a restart takes: what runs goes on.
    pub fn reload(&self) -> Result<String, ReloadError> {
        self.proxy.reload()
    }

    /// Opens the access log anew.
    pub fn reopen_log(&self) {
        self.proxy.log.reopen();
    }

    /// Drains, flushes and closes. Says what the store said at closing.
    pub fn stop(self) -> Result<(), String> {
        self.proxy.stopping.store(true, Relaxed);
        let _ = self.stop.send(Stop::Listening);
        std::thread::sleep(LAST_REQUESTS);
        let _ = self.stop.send(Stop::All);
        for thread in self.threads.into_inner() {
            let _ = thread.join();
        }
        self.proxy.log.close();
        self.proxy.store.clone().close().map_err(|e| e.to_string())
    }
}

fn spawn(name: String, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, StartError> {
    std::thread::Builder::new().name(name).spawn(run).map_err(StartError::Thread)
}

/// As many descriptors as the system lets us have: the usual soft limit of 1,024 is for programs that use `select`.
fn raise_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

fn open_store(config: &Config) -> Result<Store, StartError> {
    let options = config.store.options();
    let options = options.map_err(|e| StartError::Setting(format!("store {}: {e}", config.store.path.display())))?;
    let path = config.store.path.display();
    Store::open(options).map_err(|e| match &e {
        picaflor::Error::Damaged { .. } => StartError::Damaged(e.to_string()),
        picaflor::Error::Option { .. } => StartError::Setting(format!("store {path}: {e}")),
        // The device names the file itself.
        picaflor::Error::Io { source, .. } => StartError::Store(match source.kind() {
            io::ErrorKind::ResourceBusy => format!("{source}; stop that first, or take another store (store.path)"),
            io::ErrorKind::PermissionDenied => format!("{source}; run as its owner"),
            io::ErrorKind::StorageFull => format!("{source}; take less (store.capacity) or another place (store.path)"),
            _ => source.to_string(),
        }),
        picaflor::Error::Version { .. } => StartError::Store(e.to_string()),
        _ => StartError::Store(format!("store {path}: {e}")),
    })
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
    };

    use super::*;
    use crate::Low;

    /// The head of the answer, and whether the connection ends behind the body of two bytes.
    fn ask(stream: &mut TcpStream) -> (String, bool) {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\nok") {
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        let ends = head.contains("connection: close");
        (head, ends && stream.read(&mut byte).is_ok_and(|n| n == 0))
    }

    #[test]
    fn while_it_stops_each_answer_says_that_it_is_the_last() {
        let origin = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", origin.local_addr().unwrap());
        std::thread::spawn(move || {
            let (mut stream, _) = origin.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncache-control: max-age=60\r\ncontent-length: 2\r\n\r\nok");
        });
        let folder = tempfile::tempdir().unwrap();
        let text =
            format!("workers = 1\n[store]\ncapacity = \"64MiB\"\nmemory = \"32MiB\"\n[[origin]]\nurl = \"{url}\"\n");
        let mut low = Low::parse("test.toml", &text).unwrap();
        low.listen = Some(vec![([127, 0, 0, 1], 0).into()]);
        low.admin.listen = Some(([127, 0, 0, 1], 0).into());
        low.store.path = Some(folder.path().join("store"));
        let server = Server::start(low.resolve().unwrap()).unwrap();
        let mut stream = TcpStream::connect(server.addresses()[0]).unwrap();
        // A miss, then hits, the last of them on the fast path.
        while !ask(&mut stream).0.contains("picaflor; hit") {}
        assert_eq!(ask(&mut stream).0.matches("close").count(), 0);
        server.proxy().stopping.store(true, Relaxed);
        let (head, is_over) = ask(&mut stream);
        assert!(is_over, "{head}");
        server.stop().unwrap();
    }
}
