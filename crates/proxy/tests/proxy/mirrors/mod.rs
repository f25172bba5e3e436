//! The ready files of `packaging/mirrors`, each with the real client of its packages and a real nginx that has them, by
//! TLS. Each test installs, ends the origin, and installs again with nothing that the client kept.
//!
//! Of a file only this is changed: its names are those of the test's proxy, its origins the test's nginx, and what is
//! fresh for minutes is stale at once, so that the second time all but the packages is bridged.

mod apt;
mod cargo;
mod go;
mod npm;
mod oci;
mod pip;

use std::{
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU16, Ordering::Relaxed},
};

use tempfile::TempDir;

use crate::{
    certs::Ca,
    kit::{Proxy, eventually},
    nginx::Nginx,
};

/// Whether a client is there; where it is not, the test says so and what has it, and looks at nothing.
fn is_here(program: &str, package: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok_and(|done| done.status.success())
        || Command::new(program).arg("version").output().is_ok_and(|done| done.status.success());
    if !found {
        eprintln!("NOT TESTED: `{program}` is missing here (Debian: {package}), and with it its mirror");
    }
    found
}

/// An origin, the proxy in front of it, and room for clients.
struct Mirror {
    nginx: Option<Nginx>,
    proxy: Proxy,
    folder: TempDir,
    _ca: Ca,
}

impl Mirror {
    /// The mirror of `packaging/mirrors/NAME.toml`; nginx has these `locations`.
    fn start(name: &str, locations: &str) -> Self {
        let ca = Ca::new();
        let issued = ca.issue(&["127.0.0.1"]);
        let (file, key) = (issued.file.display(), issued.key.display());
        let nginx = Nginx::start_by(
            "reuseport ssl",
            &format!("ssl_certificate {file}; ssl_certificate_key {key}; {locations}"),
        );
        let listen = free();
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../packaging/mirrors/{name}.toml"));
        let text = std::fs::read_to_string(path).unwrap();
        let origin = format!("url = \"https://{}\"\nca = {:?}\n", nginx.address, ca.file());
        let lines =
            text.lines().map(|line| if line.starts_with("url = ") { origin.clone() } else { format!("{line}\n") });
        let text = lines
            .collect::<String>()
            .replace(&format!("{name}-files.mirror.example"), &format!("localhost:{}", listen.port()))
            .replace(&format!("{name}.mirror.example"), &listen.to_string());
        let text = ["5min", "1min", "1h"]
            .iter()
            .fold(text, |text, ttl| text.replace(&format!("ttl = {ttl:?}"), "ttl = \"1ms\""));
        let proxy = Proxy::start_at(&listen.to_string(), &text);
        Self { nginx: Some(nginx), proxy, folder: tempfile::tempdir().unwrap(), _ca: ca }
    }

    fn nginx(&self) -> &Nginx {
        self.nginx.as_ref().expect("it has not ended yet")
    }

    /// Without a slash at the end.
    fn url(&self) -> String {
        format!("http://{}", self.proxy.address)
    }

    /// A new folder.
    fn room(&self, name: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    /// A client that knows nothing but what it is told.
    fn client(&self, program: &str, home: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("HOME", home).current_dir(home);
        let own = std::env::var_os("HOME").unwrap_or_default();
        command.env("RUSTUP_HOME", std::env::var_os("RUSTUP_HOME").unwrap_or(Path::new(&own).join(".rustup").into()));
        for name in ["PATH", "PYENV_ROOT", "LD_LIBRARY_PATH"] {
            command.envs(std::env::var_os(name).map(|value| (name, value)));
        }
        command
    }

    /// From now on there is no origin.
    fn end_origin(&mut self) {
        self.proxy.settle();
        let address = self.nginx().address;
        self.nginx = None;
        eventually("no server listens there", || TcpStream::connect(address).is_err());
    }

    /// Installs twice, the second time without an origin, each time in a room of its own. `packages` are asked for
    /// once.
    fn twice(&mut self, packages: &[&str], install: impl Fn(&Self, &Path)) {
        install(self, &self.room("first"));
        self.proxy.settle();
        for path in packages {
            self.nginx().was_asked(path, 1);
        }
        self.end_origin();
        install(self, &self.room("second"));
        let stats = self.proxy.stats();
        assert!(
            stats["proxy"]["requests"]["hit-stale"].as_u64() > Some(0),
            "the index was bridged: {}",
            stats["proxy"]
        );
    }
}

/// A port that can be in a configuration before the proxy has it: below those that the system gives to a process that
/// asks for any, and each time another one.
fn free() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = std::process::id() % 12_000;
    let port = || 20_000 + u16::try_from((first + u32::from(NEXT.fetch_add(1, Relaxed))) % 12_000).unwrap();
    let mut addresses = (0..1000).map(|_| SocketAddr::from(([127, 0, 0, 1], port())));
    addresses.find(|address| TcpListener::bind(address).is_ok()).expect("a free port")
}

/// What it says, where it succeeds.
fn done(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}: {}{}", said(&output.stdout), said(&output.stderr));
    said(&output.stdout)
}

/// A digest of a file in hexadecimal, by a program such as `sha256sum`.
fn sum(program: &str, path: &Path) -> String {
    done(Command::new(program).arg(path)).split(' ').next().unwrap().to_owned()
}

fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}
