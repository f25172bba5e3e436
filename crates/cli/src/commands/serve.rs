//! `picaflor serve`: the proxy, until a signal stops it.

use std::{
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use listenfd::ListenFd;
use picaflor::Durability;
use picaflor_proxy::{
    Config, ConfigError, Low, Server,
    config::{Deletes, IpNet, LogFormat, LowCertificate, LowOrigin, Size},
};
use sd_notify::NotifyState;
use tokio::{
    runtime::Runtime,
    signal::unix::{Signal, SignalKind, signal},
};

use super::Failure;
use crate::output::say;

const EXAMPLES: &str = "\
Examples:
  A forward proxy for this machine, everything chosen:
      picaflor serve
      curl -x http://127.0.0.1:3128 -D- -o /dev/null http://example.com/   # a miss
      curl -x http://127.0.0.1:3128 -D- -o /dev/null http://example.com/   # a hit: see Cache-Status

  In front of a web server, forwarding for nobody unless --forward is given, too:
      picaflor serve --origin http://127.0.0.1:8080 --listen 0.0.0.0:80

  By TLS, with a certificate and its key in PEM form:
      picaflor serve --origin http://127.0.0.1:8080 --tls-listen 0.0.0.0:443 \\
           --tls-certificate fullchain.pem --tls-key privkey.pem

  Behind a TLS terminator on this machine, which speaks the PROXY protocol:
      picaflor serve --origin http://10.0.0.1:80 --trust 127.0.0.1/32 --proxy-protocol

  In front of two, by host:
      picaflor serve --origin www.example=http://10.0.0.1:80 --origin img.example=http://10.0.0.2:80

  On a disk of its own, with its own sizes:
      picaflor serve --store /dev/nvme1n1 --memory 8GiB

  See and empty:
      curl -H \"Authorization: Bearer $(cat picaflor.store.token)\" http://127.0.0.1:3129/stats
      curl -H \"Authorization: Bearer $(cat picaflor.store.token)\" -X POST \\
           'http://127.0.0.1:3129/purge?url=http://example.com/'
  or prefix=, pattern=, host=, tag=, group=…&host=, all=1, each with soft=1& before it: stale, not gone.
  Clients of the networks in purge.clients of the configuration: curl -X PURGE http://example.com/

Crashes:
  --durability says what a crash may cost of what was stored: none (no bound), every-put (nothing),
  or a time. --delete-durability says what it may undo of what a request such as POST made invalid:
  every-delete (nothing) or a time; not given, it follows from --durability: every-put is every-delete,
  a time is that time, none is 1s. A purge is durable before it is answered, whatever these say.

Signals:
  TERM, INT  stop: no new connections, requests in progress finish (limits.drain), the store writes
             its checkpoint; a second one exits at once, which costs what a crash costs
  USR1       open the access log anew, after rotation
  HUP        read certificates, keys and rules anew; connections go on. Other changes of the configuration
             are refused by name: a restart takes them, and is warm at once

Sockets that a service manager listens at (LISTEN_FDS) are taken where their addresses are those of
--listen, --tls-listen and --admin: clients that come during a restart wait, and none is refused.
      systemd-socket-activate -l 127.0.0.1:3128 picaflor serve
One that wants to be told when it is ready and when it stops (NOTIFY_SOCKET; a unit of Type=notify) is.";

/// Runs the caching proxy: reverse for the origins given, or forward for this machine
///
/// With nothing else it listens on 127.0.0.1:3128 as a forward proxy, has its admin listener on 127.0.0.1:3129, and
/// keeps its objects in picaflor.store in the current folder, with sizes chosen from the free disk and memory.
#[derive(Args)]
#[command(after_long_help = EXAMPLES, after_help = "`picaflor serve --help` has examples.")]
pub(crate) struct Serve {
    /// Configuration file; flags win over it
    #[arg(short, long, value_name = "FILE", env = "PICAFLOR_CONFIG")]
    config: Option<PathBuf>,
    /// Address for clients, repeatable [default: 127.0.0.1:3128]
    #[arg(short, long, value_name = "IP:PORT")]
    listen: Vec<SocketAddr>,
    /// Address for clients that come by TLS, repeatable [default: none]
    #[arg(long, value_name = "IP:PORT")]
    tls_listen: Vec<SocketAddr>,
    /// Certificate and those that clients need to trust it, PEM, repeatable: clients say by name which they want
    #[arg(long, value_name = "FILE")]
    tls_certificate: Vec<PathBuf>,
    /// Its key, PEM, as often as --tls-certificate and in the same order [default: in the same file]
    #[arg(long, value_name = "FILE")]
    tls_key: Vec<PathBuf>,
    /// Origin for every host, or for one: [HOST=]http://HOST:PORT or https://…, repeatable
    #[arg(short, long, value_name = "[HOST=]URL", value_parser = origin)]
    origin: Vec<LowOrigin>,
    /// Authorities, PEM, by which https origins of --origin are trusted [default: those of the system]
    #[arg(long, value_name = "FILE", requires = "origin", conflicts_with = "origin_insecure")]
    origin_ca: Option<PathBuf>,
    /// Take any certificate of https origins of --origin: anyone in between can pose as them
    #[arg(long, requires = "origin")]
    origin_insecure: bool,
    /// Store: a file, made if absent, or a raw block device [default: picaflor.store]
    #[arg(short, long, value_name = "PATH")]
    store: Option<PathBuf>,
    /// Bytes of the store; one that is there grows or shrinks to them [default: its own; of a new one, chosen from the
    /// free disk]
    #[arg(long, value_name = "SIZE")]
    capacity: Option<Size>,
    /// Bytes of memory for the store [default: chosen from the memory available]
    #[arg(long, value_name = "SIZE")]
    memory: Option<Size>,
    /// How durable puts are: none, every-put, or a time whose puts a crash may cost [default: 1s]
    #[arg(long, value_name = "BOUND")]
    durability: Option<String>,
    /// How durable invalidations are: every-delete, or a time [default: as puts; 1s where those have none]
    #[arg(long, value_name = "BOUND")]
    delete_durability: Option<String>,
    /// Storage manager: picaflor, or one of the literature's, such as stream-pack [default: as the store is, or
    /// picaflor]
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,
    /// Permissions of the store and of the access log, if they are made [default: 600]
    #[arg(long, value_name = "OCTAL")]
    file_mode: Option<String>,
    /// Threads that serve [default: one a core]
    #[arg(long, value_name = "N")]
    workers: Option<usize>,
    /// Address of the admin listener [default: 127.0.0.1:3129]
    #[arg(long, value_name = "IP:PORT")]
    admin: Option<SocketAddr>,
    /// Admin token [default: made, and kept beside the store]
    #[arg(long, value_name = "TOKEN", env = "PICAFLOR_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Forward also beside origins, for clients on this machine or those of forward.clients
    #[arg(long, conflicts_with = "no_forward")]
    forward: bool,
    /// Forward for no client [default where there are origins]
    #[arg(long)]
    no_forward: bool,
    /// Network whose X-Forwarded-* and Forwarded are kept, such as that of a TLS terminator, repeatable [default: none]
    #[arg(long, value_name = "NETWORK")]
    trust: Vec<IpNet>,
    /// Connections from these begin with a header of the PROXY protocol, version 1 or 2
    #[arg(long)]
    proxy_protocol: bool,
    /// Access log: off, stdout or a file [default: off]
    #[arg(long, value_name = "WHERE")]
    log: Option<String>,
    /// Its form: combined, squid or json [default: combined]
    #[arg(long, value_name = "FORM", value_parser = log_format)]
    log_format: Option<LogFormat>,
}

/// Reads file and flags.
type Reader = Box<dyn Fn() -> Result<Low, ConfigError> + Send + Sync>;

fn origin(text: &str) -> Result<LowOrigin, String> {
    let (host, url) = match text.split_once("=http") {
        Some((host, url)) => (Some(host.to_owned()), format!("http{url}")),
        None => (None, text.to_owned()),
    };
    if url.starts_with("http://") || url.starts_with("https://") {
        Ok(LowOrigin { host, url, ..LowOrigin::default() })
    } else {
        Err("expected http://HOST:PORT or https://HOST:PORT, with or without HOST= before it".to_owned())
    }
}

/// Each certificate with its key.
fn certificates(files: Vec<PathBuf>, keys: Vec<PathBuf>) -> Result<Option<Vec<LowCertificate>>, Failure> {
    if !keys.is_empty() && keys.len() != files.len() {
        let (keys, files) = (keys.len(), files.len());
        return Err(Failure::Usage(format!("--tls-key is given {keys} times, and --tls-certificate {files} times")));
    }
    let keys = keys.into_iter().map(Some).chain(std::iter::repeat(None));
    let pairs: Vec<_> = files.into_iter().zip(keys).map(|(file, key)| LowCertificate { file, key }).collect();
    Ok((!pairs.is_empty()).then_some(pairs))
}

fn log_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "combined" => Ok(LogFormat::Combined),
        "squid" => Ok(LogFormat::Squid),
        "json" => Ok(LogFormat::Json),
        _ => Err("expected combined, squid or json".to_owned()),
    }
}

impl Serve {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let (read, path) = self.reader()?;
        let low = read()?;
        let config = resolve(low.clone(), path.as_deref())?;
        print_choices(&config);
        // What workers, daemons and blocking calls free is of use to each other.
        picaflor::device::share_arenas(config.workers.max(2));
        let server = Server::start_at(config.clone(), handed_over()?)?;
        server.reload_from(low, read);
        // Who reads that it is ready may end it.
        let signals = Signals::listen()?;
        tell_manager(&[NotifyState::Ready, NotifyState::Status("serving")]);
        print_ready(&config, &server);
        signals.wait(server)
    }

    /// What reads the configuration, the first time and again, and where its file is.
    fn reader(self) -> Result<(Reader, Option<PathBuf>), Failure> {
        let path = self.config.clone();
        let flags = self.flags()?;
        let file = path.clone();
        let read: Reader = Box::new(move || {
            let file = file.as_ref().map_or_else(|| Ok(Low::default()), |path| Low::read(path))?;
            Ok(file.under(flags.clone()))
        });
        Ok((read, path))
    }

    fn flags(self) -> Result<Low, Failure> {
        let mut flags = Low { workers: self.workers, origin: self.origin, ..Low::default() };
        for origin in flags.origin.iter_mut().filter(|origin| origin.url.starts_with("https://")) {
            origin.ca.clone_from(&self.origin_ca);
            origin.verify = self.origin_insecure.then_some(false);
        }
        flags.listen = (!self.listen.is_empty()).then_some(self.listen);
        flags.store.path = self.store;
        flags.store.capacity = self.capacity;
        flags.store.memory = self.memory;
        flags.store.durability = self.durability;
        flags.store.delete_durability = self.delete_durability;
        flags.store.preset = self.preset;
        flags.store.file_mode = self.file_mode;
        flags.admin.listen = self.admin;
        flags.admin.token = self.token;
        flags.forward.enabled = (self.forward || self.no_forward).then_some(self.forward);
        flags.front.trusted = (!self.trust.is_empty()).then_some(self.trust);
        flags.front.proxy_protocol = self.proxy_protocol.then_some(true);
        flags.tls.listen = (!self.tls_listen.is_empty()).then_some(self.tls_listen);
        flags.tls.certificate = certificates(self.tls_certificate, self.tls_key)?;
        flags.log.to = self.log;
        flags.log.format = self.log_format;
        Ok(flags)
    }
}

/// Sockets of the service manager that started this (`LISTEN_FDS`, as sd_listen_fds(3) has it).
fn handed_over() -> Result<Vec<TcpListener>, Failure> {
    let mut all = ListenFd::from_env();
    let count = all.len();
    let mut one = |n| {
        let no_tcp = |e| Failure::Usage(format!("socket {n} of LISTEN_FDS: {e}; hand over TCP sockets that listen"));
        all.take_tcp_listener(n).map_err(no_tcp)
    };
    (0..count).filter_map(|n| one(n).transpose()).collect()
}

fn resolve(low: Low, path: Option<&Path>) -> Result<Config, Failure> {
    low.resolve().map_err(|error| match path {
        // A flag may have said it instead.
        Some(path) if alone(path).is_some_and(|alone| alone.is_about_the_same(&error)) => error.in_file(path).into(),
        _ => Failure::from(error),
    })
}

/// What is wrong with the file by itself.
fn alone(path: &Path) -> Option<ConfigError> {
    Low::read(path).and_then(Low::resolve).err()
}

fn print_choices(config: &Config) {
    let store = &config.store;
    say!("store    {}, {}, memory {}", store.path.display(), store.capacity, store.memory);
    // A row that there is not is told by who opens the store.
    let Ok(options) = store.options() else { return };
    match options.crash_cost() {
        Durability::Bounded { .. } => say!("         a crash costs at most the last {}", store.durability),
        Durability::EveryPut => say!("         a crash costs nothing: every put is durable"),
        _ => say!("         a crash may cost whatever was put since the last checkpoint"),
    }
    // A row that makes every put durable, whatever was asked for, does so with deletes.
    let of_the_row = options.crash_cost() != options.durability;
    match Deletes::read(&store.delete_durability).filter(|_| !of_the_row) {
        Some(Deletes::Within(_)) => {
            say!("         and undoes invalidations of at most the last {}, and no purge", store.delete_durability);
        }
        _ => say!("         and undoes no invalidation and no purge"),
    }
    say!("workers  {}", config.workers);
}

fn print_ready(config: &Config, server: &Server) {
    for address in server.addresses() {
        say!("listen   {address}");
    }
    for address in server.tls_addresses() {
        say!("listen   {address} by TLS");
        if config.tls.as_ref().is_some_and(|tls| tls.http3) {
            say!("         and by HTTP/3");
        }
    }
    if config.forward.enabled {
        let clients: Vec<_> = config.forward.clients.iter().map(ToString::to_string).collect();
        say!("forward  for {}; CONNECT to {:?}", clients.join(", "), config.forward.connect_ports);
    } else {
        say!("forward  for nobody");
    }
    if !config.front.trusted.is_empty() {
        let trusted: Vec<_> = config.front.trusted.iter().map(ToString::to_string).collect();
        let spoken = if config.front.proxy_protocol { ", by the PROXY protocol" } else { "" };
        say!("front    {} is believed{spoken}", trusted.join(", "));
    }
    for origin in &config.origin {
        let doubt = if origin.verify == Some(false) { ", NOT VERIFIED" } else { "" };
        say!("origin   {} <- {}{doubt}", origin.url, origin.host.as_deref().unwrap_or("every host"));
    }
    let admin = server.admin_address();
    match server.token_file().map(Path::display) {
        Some(file) => say!("admin    {admin}, token in {file}"),
        None => say!("admin    {admin}"),
    }
    // After a crash both wait for the opening's end, and clients are answered before it.
    say!("receipt  {}", server.receipt());
    if let Some(backend) = server.backend() {
        say!("device   {backend}");
    }
    // A certificate that was made for a try is not one that curl trusts.
    let by_tls = server.tls_addresses().first().map(|first| (first, "-k ", "https"));
    if let Some((first, flag, scheme)) = server.addresses().first().map(|first| (first, "", "http")).or(by_tls) {
        say!();
        say!("Try it twice, and look at Cache-Status:");
        match config.origin.first() {
            Some(origin) => {
                let host = origin.host.as_ref().map(|host| format!("-H 'Host: {host}' ")).unwrap_or_default();
                say!("  curl -sD- -o /dev/null {flag}{host}{scheme}://{first}/");
            }
            None if flag.is_empty() => say!("  curl -sD- -o /dev/null -x http://{first} http://example.com/"),
            None => say!("  curl -sD- -o /dev/null --proxy-insecure -x https://{first} http://example.com/"),
        }
    }
}

/// Tells the service manager that started this, if it wants to be told (`NOTIFY_SOCKET`, as sd_notify(3) has it).
fn tell_manager(states: &[NotifyState<'_>]) {
    if let Err(e) = sd_notify::notify(states) {
        eprintln!("picaflor: telling the service manager at NOTIFY_SOCKET: {e}");
    }
}

/// How often the store is asked whether it still writes.
const GLANCE: Duration = Duration::from_secs(1);

struct Signals {
    runtime: Runtime,
    term: Signal,
    int: Signal,
    reopen: Signal,
    hang_up: Signal,
}

impl Signals {
    fn listen() -> Result<Self, Failure> {
        let fail = |e: std::io::Error| Failure::Failed(format!("signals: {e}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(fail)?;
        let inside = runtime.enter();
        let of = |kind| signal(kind).map_err(fail);
        let (term, int) = (of(SignalKind::terminate())?, of(SignalKind::interrupt())?);
        let (reopen, hang_up) = (of(SignalKind::user_defined1())?, of(SignalKind::hangup())?);
        drop(inside);
        Ok(Self { runtime, term, int, reopen, hang_up })
    }

    /// Waits for signals; the first TERM or INT drains, the second exits.
    fn wait(self, server: Server) -> Result<(), Failure> {
        let Self { runtime, mut term, mut int, mut reopen, mut hang_up } = self;
        runtime.block_on(async {
            let mut failure = None;
            loop {
                tokio::select! {
                    () = tokio::time::sleep(GLANCE), if failure.is_none() => {
                        failure = server.store_failure();
                        if let Some(why) = &failure {
                            let why = format!("the store takes no more writes, and what it has not is fetched: {why}");
                            eprintln!("picaflor: {why}");
                            tell_manager(&[NotifyState::Status(&why)]);
                        }
                    }
                    _ = term.recv() => break,
                    _ = int.recv() => break,
                    _ = reopen.recv() => server.reopen_log(),
                    _ = hang_up.recv() => match server.reload() {
                        Ok(taken) => eprintln!("picaflor: reload: {taken}"),
                        Err(why) => eprintln!("picaflor: reload: {why}"),
                    },
                }
            }
            eprintln!("picaflor: stopping; once more to exit at once");
            tell_manager(&[NotifyState::Stopping]);
            let stopping = super::beside(move || server.stop());
            tokio::select! {
                stopped = stopping => match stopped {
                    Some(Ok(())) => Ok(()),
                    Some(Err(e)) => Err(Failure::Failed(format!("closing the store: {e}"))),
                    None => Err(Failure::Failed("closing the store did not end as it should".into())),
                },
                _ = term.recv() => std::process::exit(1),
                _ = int.recv() => std::process::exit(1),
            }
        })
    }
}
