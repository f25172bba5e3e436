//! RocksDB with blob files, as Debian packages it; a safe write is a batch whose log is forced.
//!
//! It is asked by a small program of its own, `rocksdb.c`, which is compiled against the package where this candidate
//! is opened, and spoken to over pipes: no other part builds or links RocksDB. A value is given whole; objects that are
//! written at one time are of one batch. Values lie in blob files one behind the other. What was replaced is free when
//! a compaction has moved what lives in its file elsewhere. The files grow as they have to; beyond the volume they are
//! full.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Read, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use super::candidate::{Candidate, Located, Manner, Write, Wrote, force_and_forget};
use crate::{
    Error, Result,
    age::{load::Load, marks, spec::Case},
    run::Kept,
};

const PROGRAM: &str = include_str!("rocksdb.c");
/// Times that the size of the files is asked for, while as much is written as the volume has.
const ASKED: u64 = 64;
/// What the program says instead of a length.
const NOTHING: i64 = -1;
const FAILED: i64 = -2;

pub(super) struct RocksDb {
    child: Child,
    requests: BufWriter<ChildStdin>,
    answers: ChildStdout,
    data: PathBuf,
    volume: u64,
    written: u64,
    _kept: Kept,
}

impl Drop for RocksDb {
    fn drop(&mut self) {
        // What it has is removed: there is nothing to save.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn failed(why: impl ToString) -> Error {
    Error::experiment("rocksdb", why.to_string())
}

/// Compiles the program into this folder.
fn compile(folder: &Path) -> Result<PathBuf> {
    let (source, program) = (folder.join("rocksdb.c"), folder.join("rocksdb"));
    fs::write(&source, PROGRAM).map_err(Error::file("writing", &source))?;
    let made = Command::new("cc").args(["-O1", "-o"]).arg(&program).arg(&source).arg("-lrocksdb").output();
    let made = made.map_err(|error| failed(format!("cc: {error}: install the packages gcc and librocksdb-dev")))?;
    if made.status.success() {
        return Ok(program);
    }
    let said = String::from_utf8_lossy(&made.stderr);
    let why = said.lines().find(|line| line.contains("error") || line.contains("cannot")).unwrap_or("it failed");
    Err(failed(format!("cc: {why}: install the packages gcc and librocksdb-dev")))
}

/// Whether RocksDB is installed, with a compiler.
///
/// # Errors
/// With the packages that are to be installed, if not.
pub(in crate::age) fn is_installed() -> Result<()> {
    compile(Kept::made_in(&std::env::temp_dir())?.path()).map(drop)
}

impl RocksDb {
    pub(super) fn new(case: &Case, folder: &Path) -> Result<Self> {
        let kept = Kept::made_in(folder)?;
        let (program, data) = (compile(kept.path())?, kept.path().join("data"));
        let mut command = Command::new(&program);
        command.arg(&data).arg(case.volume.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| failed(format!("starting it: {error}")))?;
        let (Some(requests), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(failed("it was started without its pipes"));
        };
        let requests = BufWriter::new(requests);
        let mut all = Self { child, requests, answers, data, volume: case.volume, written: 0, _kept: kept };
        all.answer(&mut Vec::new())?;
        Ok(all)
    }

    /// Sends a request of these parts.
    fn send(&mut self, parts: &[&[u8]]) -> Result<()> {
        let sent = parts.iter().try_for_each(|part| self.requests.write_all(part));
        sent.map_err(|error| self.ended(&error))
    }

    /// Whether something was answered, and what.
    fn answer(&mut self, into: &mut Vec<u8>) -> Result<bool> {
        let answered = self.requests.flush().and_then(|()| self.try_answer(into));
        match answered.map_err(|error| self.ended(&error))? {
            NOTHING => Ok(false),
            FAILED => Err(failed(String::from_utf8_lossy(into))),
            _ => Ok(true),
        }
    }

    fn try_answer(&mut self, into: &mut Vec<u8>) -> io::Result<i64> {
        let mut number = || {
            let mut bytes = [0; 8];
            self.answers.read_exact(&mut bytes).map(|()| i64::from_ne_bytes(bytes))
        };
        let told = number()?;
        let length = if told == FAILED { number()? } else { told };
        into.resize(usize::try_from(length).unwrap_or(0), 0);
        self.answers.read_exact(into)?;
        Ok(told)
    }

    fn ended(&mut self, error: &io::Error) -> Error {
        let how = self.child.try_wait().ok().flatten().map_or("runs".into(), |ended| format!("ended with {ended}"));
        failed(format!("its program {how}, and does not answer: {error}"))
    }

    /// A request whose answer says nothing.
    fn ask(&mut self, parts: &[&[u8]]) -> Result<()> {
        self.send(parts)?;
        self.answer(&mut Vec::new()).map(drop)
    }

    /// Files of the database, with what they have; some may go meanwhile.
    fn files(&self) -> Result<Vec<(PathBuf, u64)>> {
        let entries = fs::read_dir(&self.data).map_err(Error::file("listing", &self.data))?;
        let mut files: Vec<_> =
            entries.flatten().filter_map(|entry| Some((entry.path(), entry.metadata().ok()?.len()))).collect();
        files.sort();
        Ok(files)
    }

    /// Those that have objects. After a flush the log has none that is not in another one too.
    fn with_objects(&self) -> Result<Vec<PathBuf>> {
        let has = |path: &PathBuf| path.extension().is_some_and(|end| end == "blob" || end == "sst");
        Ok(self.files()?.into_iter().map(|file| file.0).filter(has).collect())
    }
}

fn key(object: u32) -> [u8; 4] {
    object.to_be_bytes()
}

impl Candidate for RocksDb {
    fn write(&mut self, writes: &[Write<'_>], _: &Manner) -> Result<Wrote> {
        self.send(&[b"W", &(writes.len() as u32).to_ne_bytes()])?;
        for write in writes {
            self.send(&[&key(write.version.object), &write.len().to_ne_bytes(), write.body])?;
        }
        self.answer(&mut Vec::new())?;
        let before = self.written * ASKED / self.volume;
        self.written += writes.iter().map(Write::len).sum::<u64>();
        if self.written * ASKED / self.volume == before {
            return Ok(Wrote::Done);
        }
        let bytes: u64 = self.files()?.iter().map(|file| file.1).sum();
        Ok(if bytes > self.volume { Wrote::Full(format!("its files have {bytes} bytes")) } else { Wrote::Done })
    }

    fn delete(&mut self, object: u32) -> Result<()> {
        self.ask(&[b"D", &key(object)])
    }

    fn read(&mut self, object: u32, into: &mut Vec<u8>) -> Result<bool> {
        self.send(&[b"G", &key(object)])?;
        self.answer(into)
    }

    fn settle(&mut self) -> Result<()> {
        self.ask(&[b"S"])?;
        self.with_objects()?.iter().filter(|path| File::open(path).is_ok()).try_for_each(|path| force_and_forget(path))
    }

    fn locate(&mut self, load: &Load) -> Result<Located> {
        Ok(Located { marks: Some(marks::scan_files(&self.with_objects()?, None, load)?), told: None })
    }

    fn written(&mut self) -> Option<u64> {
        let mut bytes = Vec::new();
        self.send(&[b"B"]).ok()?;
        self.answer(&mut bytes).ok()?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    }
}
