//! `picaflor serve` as a process of its own.

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use picaflor::Durability;

use super::wish::durability_word;

/// What is asked of the admin listener needs it.
pub(super) const TOKEN: &str = "rounds-token-0123456789abcdef";

/// How it is started.
pub(super) struct Serving<'a> {
    pub(super) picaflor: &'a Path,
    pub(super) folder: &'a Path,
    pub(super) origin: SocketAddr,
    pub(super) preset: &'a str,
    pub(super) durability: Durability,
    pub(super) capacity: u64,
    pub(super) memory: u64,
    /// A file with what no argument says.
    pub(super) config: Option<&'a Path>,
}

/// A proxy that runs.
pub(super) struct Proxy {
    pub(super) child: Child,
    pub(super) addresses: Option<(SocketAddr, SocketAddr)>,
}

impl Serving<'_> {
    /// Where its store lies.
    pub(super) fn store(&self) -> PathBuf {
        self.folder.join("store")
    }

    /// Starts it. A write beyond the limit of the length of files ends in an error for it, not in its death.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn start(&self) -> io::Result<Proxy> {
        let word = match self.durability {
            Durability::Bounded { time, .. } => format!("{}ms", time.as_millis()),
            other => durability_word(other),
        };
        let errors = File::options().create(true).append(true).open(self.folder.join("errors"))?;
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""]).arg(self.picaflor).args(["serve", "--no-forward"]);
        if let Some(config) = self.config {
            command.arg("--config").arg(config);
        }
        command.args(["--origin", &format!("http://{}", self.origin)]);
        command.args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--workers", "2", "--token", TOKEN]);
        command.args(["--capacity", &self.capacity.to_string(), "--memory", &self.memory.to_string()]);
        command.args(["--preset", self.preset, "--durability", &word, "--store"]).arg(self.store());
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors).spawn()?;
        Ok(Proxy { child, addresses: None })
    }
}

impl Proxy {
    /// Waits until it says where it listens. False if it ended before.
    pub(super) fn listen(&mut self) -> bool {
        let Some(out) = self.child.stdout.take() else { return false };
        let (mut listen, mut admin) = (None, None);
        let mut lines = BufReader::new(out).lines().map_while(Result::ok);
        for line in &mut lines {
            let address = |name| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok();
            listen = listen.or(address("listen"));
            admin = admin.or(address("admin"));
            if let (Some(listen), Some(admin)) = (listen, admin) {
                self.addresses = Some((listen, admin));
                std::thread::spawn(move || lines.for_each(drop));
                return true;
            }
        }
        false
    }
}
