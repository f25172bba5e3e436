//! PostgreSQL as Debian packages it: a server of our own in the engine's folder, on a Unix socket, as an unprivileged
//! user, that ends with us. Puts that need not be durable share a transaction.

use std::{
    fs,
    os::unix::fs::{MetadataExt, chown},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use ::postgres::{Client, NoTls, Statement, fallible_iterator::FallibleIterator};
use anyhow::{Context, Result, bail, ensure};
use parking_lot::Mutex;
use tempfile::TempDir;

use super::{Config, Engine, Walk, transactions::Transactions};

/// Who runs the server where we are root, as whom it refuses to run.
const USER: &str = "postgres";
const PATIENCE: Duration = Duration::from_secs(60);

struct Postgres {
    server: Server,
    /// The writer, and what changes share.
    writer: Mutex<(Session, Transactions)>,
    readers: Mutex<Vec<Session>>,
}

struct Session {
    client: Client,
    put: Statement,
    get: Statement,
    delete: Statement,
}

struct Server {
    child: Child,
    programs: PathBuf,
    data: PathBuf,
    /// Where its socket is: a path of its own, for a socket's may not be long.
    socket: TempDir,
}

/// Where the programs are, if they are installed.
fn programs() -> Option<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
        .filter(|bin| bin.join("postgres").exists() && bin.join("initdb").exists())
        .collect();
    found.sort();
    found.pop()
}

/// Why it cannot be run here, if it cannot.
pub(super) fn absent() -> Option<String> {
    programs().is_none().then(|| "PostgreSQL is not installed (Debian: postgresql), and was left out.".into())
}

pub(super) fn open(config: &Config) -> Result<Box<dyn Engine>> {
    let server = Server::start(config)?;
    let mut client = server.connect()?;
    client.batch_execute(
        "CREATE TABLE IF NOT EXISTS objects(key bytea PRIMARY KEY, body bytea NOT NULL);
         ALTER TABLE objects ALTER COLUMN body SET STORAGE EXTERNAL;",
    )?;
    let writer = Mutex::new((Session::new(client)?, Transactions::new(config.commit_every)));
    Ok(Box::new(Postgres { server, writer, readers: Mutex::new(Vec::new()) }))
}

/// A command of the server's user, which ends when we do.
fn as_user(program: &Path) -> Result<Command> {
    let is_root = fs::metadata("/proc/self")?.uid() == 0;
    let mut command = Command::new("setpriv");
    if is_root {
        command.arg(format!("--reuid={USER}")).arg(format!("--regid={USER}")).arg("--init-groups");
    }
    command.args(["--pdeathsig", "KILL", "--"]).arg(program).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(command)
}

/// Gives a folder to the server's user.
fn give(folder: &Path) -> Result<()> {
    if fs::metadata("/proc/self")?.uid() == 0 {
        let id = |flag: &str| -> Result<u32> {
            let said = Command::new("id").args([flag, USER]).output()?;
            Ok(String::from_utf8(said.stdout)?.trim().parse()?)
        };
        chown(folder, Some(id("-u")?), Some(id("-g")?))?;
    }
    Ok(())
}

impl Server {
    fn start(config: &Config) -> Result<Self> {
        let programs = programs().context("PostgreSQL is not installed")?;
        let data = config.folder.canonicalize()?.join("postgres");
        if !data.exists() {
            fs::create_dir(&data)?;
            give(&data)?;
            let made = as_user(&programs.join("initdb"))?
                .args(["--auth=trust", "--encoding=UTF8", "--locale=C", "--username=bench", "-D"])
                .arg(&data)
                .status()?;
            ensure!(made.success(), "initdb ended with {made}; may {USER} reach {}?", data.display());
        }
        let socket = tempfile::tempdir()?;
        give(socket.path())?;
        let settings = [
            "listen_addresses=".to_owned(),
            format!("unix_socket_directories={}", socket.path().display()),
            format!("shared_buffers={}kB", (config.memory >> 10).max(1024)),
            format!("synchronous_commit={}", if config.durable { "on" } else { "off" }),
            "wal_level=minimal".to_owned(),
            "max_wal_senders=0".to_owned(),
        ];
        let mut command = as_user(&programs.join("postgres"))?;
        command.arg("-D").arg(&data);
        settings.iter().for_each(|setting| {
            command.args(["-c", setting]);
        });
        Ok(Self { child: command.spawn().context("starting postgres by setpriv")?, programs, data, socket })
    }

    /// A connection, as soon as there can be one: what a killed server left may take it a while.
    fn connect(&self) -> Result<Client> {
        let end = Instant::now() + PATIENCE;
        let where_to = format!("host={} user=bench dbname=postgres", self.socket.path().display());
        loop {
            match Client::connect(&where_to, NoTls) {
                Ok(client) => return Ok(client),
                Err(error) if Instant::now() > end => bail!("PostgreSQL does not answer: {error}"),
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let stopped = as_user(&self.programs.join("pg_ctl"))
            .and_then(|mut command| Ok(command.args(["stop", "-m", "fast", "-D"]).arg(&self.data).status()?));
        if !stopped.is_ok_and(|status| status.success()) {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

impl Session {
    fn new(mut client: Client) -> Result<Self> {
        let put = client
            .prepare("INSERT INTO objects VALUES($1, $2) ON CONFLICT (key) DO UPDATE SET body = EXCLUDED.body")?;
        let get = client.prepare("SELECT body FROM objects WHERE key = $1")?;
        let delete = client.prepare("DELETE FROM objects WHERE key = $1")?;
        Ok(Self { client, put, get, delete })
    }
}

impl Postgres {
    fn change(&self, act: impl FnOnce(&mut Session) -> Result<(), ::postgres::Error>) -> Result<()> {
        let (session, open) = &mut *self.writer.lock();
        if open.begins() {
            session.client.batch_execute("BEGIN")?;
        }
        act(session)?;
        if open.ends() {
            session.client.batch_execute("COMMIT")?;
        }
        Ok(())
    }

    fn reading<T>(&self, act: impl FnOnce(&mut Session) -> Result<T>) -> Result<T> {
        let idle = self.readers.lock().pop();
        let mut session = match idle {
            Some(session) => session,
            None => Session::new(self.server.connect()?)?,
        };
        let found = act(&mut session)?;
        self.readers.lock().push(session);
        Ok(found)
    }
}

impl Engine for Postgres {
    fn put(&self, key: &[u8], body: &[u8]) -> Result<()> {
        self.change(|session| session.client.execute(&session.put, &[&key, &body]).map(drop))
    }

    fn get(&self, key: &[u8], seen: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.reading(|session| {
            let row = session.client.query_opt(&session.get, &[&key])?;
            if let Some(row) = &row {
                seen(row.get(0));
            }
            Ok(row.is_some())
        })
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.change(|session| session.client.execute(&session.delete, &[&key]).map(drop))
    }

    fn commit(&self) -> Result<()> {
        let (session, open) = &mut *self.writer.lock();
        if open.is_left() {
            session.client.batch_execute("COMMIT")?;
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.commit()?;
        let (session, _) = &mut *self.writer.lock();
        Ok(session.client.batch_execute("CHECKPOINT")?)
    }

    fn walk(&self, what: Walk, seen: &mut dyn FnMut(&[u8])) -> Result<()> {
        let columns = match what {
            Walk::Keys => "key",
            Walk::Values => "body",
            Walk::Pairs => "key, body",
        };
        self.reading(|session| {
            let nothing: [&[u8]; 0] = [];
            let mut rows = session.client.query_raw(&format!("SELECT {columns} FROM objects"), nothing)?;
            while let Some(row) = rows.next()? {
                (0..row.len()).for_each(|column| seen(row.get(column)));
            }
            Ok(())
        })
    }
}
