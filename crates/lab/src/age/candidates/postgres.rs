//! A row with a `bytea` for each object in PostgreSQL, as Debian packages it; a safe write is a transaction that is
//! durable when it commits. The server is started for the run, on a Unix socket, as an unprivileged user, and ends with
//! us. PostgreSQL cuts a long value into rows of 2 KB in a table of its own (TOAST), in pages that fill from their end.
//!
//! A value is bound whole, so there are no requests; objects that are written at one time are rows of one transaction.
//! What was replaced is free after a vacuum. The server's own comes by the clock, so it is off, and one is run when
//! it would be due: at a fifth of the rows. The tables grow as they have to; beyond the volume they are full.

use std::{
    collections::HashSet,
    fs::{self, File},
    io,
    os::unix::fs::chown,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use ::postgres::{Client, NoTls, error::SqlState};

use super::candidate::{Candidate, Located, Manner, Write, Wrote, force_and_forget};
use crate::{
    Error, Result,
    age::{load::Load, marks, spec::Case},
    run::Kept,
};

/// The user of the server where we are root: it refuses to run as that.
const USER: &str = "postgres";
/// Until it answers.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of a page.
const PAGE: u64 = 8192;
/// Dead rows for each 100 that live at which the server would vacuum.
const DEAD: u64 = 20;
/// Times that the size of the tables is asked for, while as much is written as the volume has.
const ASKED: u64 = 64;

pub(super) struct Postgres {
    client: Client,
    data: PathBuf,
    volume: u64,
    written: u64,
    live: HashSet<u32>,
    /// Rows that are dead since the last vacuum.
    dead: u64,
    // In this order they go.
    _server: Server,
    _socket: Kept,
    _kept: Kept,
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // What it has is removed: there is nothing to save.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn failed(why: impl ToString) -> Error {
    Error::experiment("postgresql", why.to_string())
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

impl Postgres {
    pub(super) fn new(case: &Case, folder: &Path) -> Result<Self> {
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
        let mut server = Server(command.stderr(said()?).spawn().map_err(|error| not_run(&error))?);
        let mut client = connect(&mut server, socket.path(), &log)?;
        let table = "CREATE TABLE objects (id bigint PRIMARY KEY, body bytea NOT NULL); \
                     ALTER TABLE objects ALTER COLUMN body SET STORAGE EXTERNAL;";
        client.batch_execute(table).map_err(failed)?;
        let (volume, live) = (case.volume, HashSet::new());
        Ok(Self { client, data, volume, written: 0, live, dead: 0, _server: server, _socket: socket, _kept: kept })
    }

    fn try_write(&mut self, writes: &[Write<'_>]) -> std::result::Result<(), ::postgres::Error> {
        let mut transaction = self.client.transaction()?;
        let insert = "INSERT INTO objects VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET body = EXCLUDED.body";
        for write in writes {
            transaction.execute(insert, &[&i64::from(write.version.object), &write.body])?;
        }
        transaction.commit()
    }

    /// Frees what is dead, when that is due.
    fn vacuum(&mut self) -> Result<()> {
        if self.dead * 100 > self.live.len() as u64 * DEAD {
            self.dead = 0;
            self.client.batch_execute("VACUUM objects").map_err(failed)?;
        }
        Ok(())
    }

    /// Why there is no room, if the tables are larger than the volume.
    fn is_full(&mut self) -> Result<Option<String>> {
        let row = self.client.query_one("SELECT pg_total_relation_size('objects')", &[]).map_err(failed)?;
        let bytes: i64 = row.get(0);
        Ok((bytes as u64 > self.volume).then(|| format!("its tables have {bytes} bytes")))
    }

    /// The files of the table and of what it keeps elsewhere.
    fn files(&mut self) -> Result<Vec<PathBuf>> {
        let query = "SELECT pg_relation_filepath(oid), pg_relation_filepath(reltoastrelid) FROM pg_class \
                     WHERE oid = 'objects'::regclass";
        let row = self.client.query_one(query, &[]).map_err(failed)?;
        let mut files = Vec::new();
        for table in [row.get::<_, String>(0), row.get(1)] {
            let part = |number: u32| match number {
                0 => self.data.join(&table),
                // Of 1 GB each.
                _ => self.data.join(format!("{table}.{number}")),
            };
            files.extend((0..).map(part).take_while(|path| path.exists()));
        }
        Ok(files)
    }
}

fn not_run(error: &io::Error) -> Error {
    failed(format!("starting it by setpriv, of the package util-linux: {error}"))
}

/// A connection, as soon as there can be one.
fn connect(server: &mut Server, socket: &Path, log: &Path) -> Result<Client> {
    let end = Instant::now() + PATIENCE;
    let where_to = format!("host={} user=lab dbname=postgres", socket.display());
    loop {
        let error = match Client::connect(&where_to, NoTls) {
            Ok(client) => return Ok(client),
            Err(error) => error,
        };
        if let Ok(Some(ended)) = server.0.try_wait() {
            return Err(failed(format!("the server ended with {ended}: {}", last_word(log))));
        }
        if Instant::now() > end {
            return Err(failed(format!("no answer for {} s: {error}", PATIENCE.as_secs())));
        }
        thread::sleep(Duration::from_millis(5));
    }
}

impl Candidate for Postgres {
    fn write(&mut self, writes: &[Write<'_>], _: &Manner) -> Result<Wrote> {
        match self.try_write(writes) {
            Ok(()) => {}
            Err(error) if error.code() == Some(&SqlState::DISK_FULL) => return Ok(Wrote::Full(error.to_string())),
            Err(error) => return Err(failed(error)),
        }
        self.dead += writes.iter().map(|write| u64::from(!self.live.insert(write.version.object))).sum::<u64>();
        self.vacuum()?;
        let before = self.written * ASKED / self.volume;
        self.written += writes.iter().map(Write::len).sum::<u64>();
        if self.written * ASKED / self.volume == before {
            return Ok(Wrote::Done);
        }
        Ok(self.is_full()?.map_or(Wrote::Done, Wrote::Full))
    }

    fn delete(&mut self, object: u32) -> Result<()> {
        self.client.execute("DELETE FROM objects WHERE id = $1", &[&i64::from(object)]).map_err(failed)?;
        self.dead += u64::from(self.live.remove(&object));
        self.vacuum()
    }

    fn read(&mut self, object: u32, into: &mut Vec<u8>) -> Result<bool> {
        into.clear();
        let row = self.client.query_opt("SELECT body FROM objects WHERE id = $1", &[&i64::from(object)]);
        let row = row.map_err(failed)?;
        row.iter().for_each(|row| into.extend_from_slice(row.get(0)));
        Ok(row.is_some())
    }

    fn settle(&mut self) -> Result<()> {
        self.client.batch_execute("CHECKPOINT").map_err(failed)?;
        self.files()?.iter().try_for_each(|path| force_and_forget(path))
    }

    fn locate(&mut self, load: &Load) -> Result<Located> {
        Ok(Located { marks: Some(marks::scan_pages(&self.files()?, PAGE, load)?), told: None })
    }
}
