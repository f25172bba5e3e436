//! The server: started for the run, on a Unix socket, as an unprivileged user, and ended with us.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::chown,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use ::postgres::{Client, NoTls};
use rustix::process::{Pid, Signal, kill_process};

use crate::{Error, Result, run::Kept};

/// The user of the server where we are root: it refuses to run as that.
const USER: &str = "postgres";
/// Until it answers, and until it ends.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) struct Server {
    child: Child,
    // They go when it has ended.
    socket: Kept,
    kept: Kept,
}

impl Drop for Server {
    fn drop(&mut self) {
        // What it has is removed: there is nothing to save. Killed, it would leave the memory that its processes share.
        let _ = kill_process(Pid::from_child(&self.child), Signal::QUIT);
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end && matches!(self.child.try_wait(), Ok(None)) {
            thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(super) fn failed(why: impl ToString) -> Error {
    Error::experiment("postgresql", why.to_string())
}

/// What the server said, or what became of the connection.
pub(super) fn refused(why: ::postgres::Error) -> Error {
    failed(why.as_db_error().map_or_else(|| why.to_string(), ToString::to_string))
}

/// Where the newest of the programs are, if any are installed.
fn programs() -> Option<PathBuf> {
    let all = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let versions = all.filter_map(|entry| Some((entry.file_name().to_str()?.parse::<u32>().ok()?, entry.path())));
    let found = versions.map(|(version, path)| (version, path.join("bin")));
    found.filter(|(_, bin)| bin.join("postgres").exists() && bin.join("initdb").exists()).max().map(|found| found.1)
}

/// Whether PostgreSQL is installed.
///
/// # Errors
/// With the package that is to be installed, if not.
pub(in crate::age) fn is_installed() -> Result<PathBuf> {
    programs().ok_or_else(|| failed("it is not installed: install the package postgresql"))
}

/// A command of the server's user, which ends when we do.
fn as_user(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    if rustix::process::geteuid().is_root() {
        command.args([&format!("--reuid={USER}"), &format!("--regid={USER}"), "--init-groups"]);
    }
    command.args(["--pdeathsig", "KILL", "--"]).arg(program).stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// Gives a folder to the server's user.
fn give(folder: &Path) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let number = |flag: &str| {
        let said = Command::new("id").args([flag, USER]).output().map_err(failed)?;
        let text = String::from_utf8_lossy(&said.stdout);
        text.trim()
            .parse::<u32>()
            .map_err(|_| failed(format!("there is no user {USER}, which it needs where we are root")))
    };
    chown(folder, Some(number("-u")?), Some(number("-g")?)).map_err(Error::file("giving to its user", folder))
}

/// What a program said last.
fn last_word(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    text.trim().lines().last().unwrap_or("it did not say why").to_owned()
}

impl Server {
    /// Makes a database in a folder, and starts it.
    pub(super) fn start(folder: &Path) -> Result<Self> {
        let programs = is_installed()?;
        let kept = Kept::made_in(folder)?;
        // A socket's path may not be long.
        let socket = Kept::made_in(&std::env::temp_dir())?;
        [&kept, &socket].into_iter().try_for_each(|kept| give(kept.path()))?;
        let (data, log) = (kept.path().join("data"), kept.path().join("log"));
        let said = || File::options().append(true).create(true).open(&log).map_err(Error::file("making", &log));
        let mut making = as_user(&programs.join("initdb"));
        making.args(["--auth=trust", "--encoding=UTF8", "--locale=C", "--username=lab", "--no-sync", "-D"]).arg(&data);
        let made = making.stderr(said()?).status().map_err(|error| not_run(&error))?;
        if !made.success() {
            let (why, place) = (last_word(&log), kept.path().display());
            return Err(failed(format!("initdb: {why}; its user has to reach {place}: another --folder?")));
        }
        let mut command = as_user(&programs.join("postgres"));
        command.arg("-D").arg(&data).args(["-c", "listen_addresses=", "-c", "autovacuum=off"]);
        command.arg("-c").arg(format!("unix_socket_directories={}", socket.path().display()));
        // A log for recovery from a crash only.
        command.args(["-c", "wal_level=minimal", "-c", "max_wal_senders=0"]);
        let child = command.stderr(said()?).spawn().map_err(|error| not_run(&error))?;
        Ok(Self { child, socket, kept })
    }

    /// The folder that the database is in.
    pub(super) fn data(&self) -> PathBuf {
        self.kept.path().join("data")
    }

    /// A connection, as soon as there can be one.
    pub(super) fn connect(&mut self) -> Result<Client> {
        let end = Instant::now() + PATIENCE;
        let where_to = format!("host={} user=lab dbname=postgres", self.socket.path().display());
        loop {
            let error = match Client::connect(&where_to, NoTls) {
                Ok(client) => return Ok(client),
                Err(error) => error,
            };
            if let Ok(Some(ended)) = self.child.try_wait() {
                let why = last_word(&self.kept.path().join("log"));
                return Err(failed(format!("the server ended with {ended}: {why}")));
            }
            if Instant::now() > end {
                return Err(failed(format!("no answer for {} s: {error}", PATIENCE.as_secs())));
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

fn not_run(error: &io::Error) -> Error {
    failed(format!("starting it by setpriv, of the package util-linux: {error}"))
}
