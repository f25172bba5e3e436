//! `picaflor rm STORE KEY...`: deletes; when the command returns, no crash brings the objects back.

use std::{
    ffi::OsString,
    io::{self, BufRead},
};

use clap::Args;

use super::Failure;
use crate::{
    human,
    key::{KeyForm, shown},
    open::OneStore,
};

const EXAMPLES: &str = "\
Examples:
  Two objects:
      picaflor rm picaflor.store http://example.com/ http://example.com/logo.png

  All that `ls` finds:
      picaflor ls -p http://a.example.com/ picaflor.store | picaflor rm picaflor.store --stdin -e
      picaflor ls -0 -p http://a.example.com/ picaflor.store | picaflor rm picaflor.store --stdin -0

  From a running server instead, which has the store locked:
      curl -H \"Authorization: Bearer $(cat picaflor.store.token)\" -X POST \\
           'http://127.0.0.1:3129/purge?url=http://example.com/'

Keys that are not there are named on standard error, the others are removed, and the exit code is then 1; with --force it \
is 0 and nothing is said.";

/// Deletes objects, durably
#[derive(Args)]
#[command(after_long_help = EXAMPLES, after_help = "`picaflor rm --help` has examples.")]
pub(crate) struct Rm {
    #[command(flatten)]
    store: OneStore,
    /// The keys
    #[arg(required_unless_present = "stdin")]
    key: Vec<OsString>,
    /// Also the keys on standard input, one a line
    #[arg(long)]
    stdin: bool,
    /// Keys on standard input end with a zero byte, not with a line
    #[arg(short = '0', long, requires = "stdin", conflicts_with = "escaped")]
    null: bool,
    /// Say nothing of keys that are not there
    #[arg(short, long)]
    force: bool,
    #[command(flatten)]
    form: KeyForm,
}

/// Keys that are removed in one call.
const AT_ONCE: usize = 256;

#[derive(Default)]
struct Tally {
    removed: u64,
    absent: u64,
}

impl Rm {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let keys = self.key.iter().map(|key| self.form.argument(key)).collect::<Result<Vec<_>, _>>();
        let mut keys = keys.map_err(Failure::Usage)?;
        // All of them first: where they come from may be `ls`, which has the store open until its end.
        if self.stdin {
            self.read(&mut keys)?;
        }
        let mut tally = Tally::default();
        // Whatever went wrong on the way, what was removed is to stay so.
        if let Some(client) = self.store.shared()? {
            let removed = keys.iter().try_for_each(|key| self.one(client.delete(key)?, key, &mut tally));
            let flushed = client.flush();
            removed?;
            flushed?;
        } else {
            let store = self.store.write()?;
            let removed = keys.chunks(AT_ONCE).try_for_each(|keys| {
                let names: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
                let were_there = store.delete_many(&names)?;
                keys.iter().zip(were_there).try_for_each(|(key, there)| self.one(there, key, &mut tally))
            });
            let closed = store.close();
            removed?;
            closed?;
        }
        if tally.absent > 0 && !self.force {
            let (absent, removed) = (human::counted(tally.absent, "key was", "keys were"), human::count(tally.removed));
            return Err(Failure::Failed(format!("{absent} not there; {removed} removed")));
        }
        Ok(())
    }

    fn read(&self, keys: &mut Vec<Vec<u8>>) -> Result<(), Failure> {
        let end = if self.null { 0 } else { b'\n' };
        for line in io::stdin().lock().split(end) {
            let line = line.map_err(|e| Failure::Failed(format!("reading standard input: {e}")))?;
            if !line.is_empty() {
                keys.push(self.form.read(&line).map_err(Failure::Usage)?);
            }
        }
        Ok(())
    }

    fn one(&self, was_there: bool, key: &[u8], tally: &mut Tally) -> Result<(), Failure> {
        if was_there {
            tally.removed += 1;
        } else {
            tally.absent += 1;
            if !self.force {
                eprintln!("picaflor: not there: {}", shown(key));
            }
        }
        Ok(())
    }
}
