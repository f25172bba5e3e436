//! A server's processes: started on one core, measured together, ended together.

use std::{
    fs::{self, File},
    net::{SocketAddr, TcpStream},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};

use super::Setup;

/// A server and its children, one process group.
pub(crate) struct Running {
    child: Child,
    group: Pid,
}

impl Running {
    /// Starts a command on the setup's core and waits until it listens.
    pub(crate) fn start(
        setup: &Setup,
        program: &Path,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<Self> {
        let log = setup.folder.join("log");
        let file = File::create(&log)?;
        let mut command = Command::new("taskset");
        command.args(["-c", &setup.core]).arg(program).args(arguments);
        command.envs(environment.iter().copied()).current_dir(&setup.folder);
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).process_group(0);
        let child = command.spawn().with_context(|| program.display().to_string())?;
        let group = Pid::from_raw(i32::try_from(child.id())?);
        let mut running = Self { child, group };
        if let Some(door) = &setup.door {
            fs::write(door, running.child.id().to_string())?;
        }
        running.wait_until_it_listens(setup.listen).with_context(|| fs::read_to_string(&log).unwrap_or_default())?;
        Ok(running)
    }

    fn wait_until_it_listens(&mut self, address: SocketAddr) -> Result<()> {
        let end = Instant::now() + Duration::from_secs(30);
        while Instant::now() < end {
            if TcpStream::connect(address).is_ok() {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("ended at once with {status}");
            }
            thread::sleep(Duration::from_millis(50));
        }
        bail!("does not listen on {address} after 30 s")
    }

    /// Processor seconds of all its processes so far.
    pub(crate) fn cpu(&self) -> f64 {
        let ticks: f64 = stats().filter(|stat| stat.group == self.group.as_raw()).map(|stat| stat.ticks).sum();
        // The kernel tells this in hundredths whatever its own clock.
        ticks / 100.0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Errors here mean that it is gone already.
        let _ = killpg(self.group, Signal::SIGTERM);
        let end = Instant::now() + Duration::from_secs(20);
        while Instant::now() < end && matches!(self.child.try_wait(), Ok(None)) {
            thread::sleep(Duration::from_millis(50));
        }
        let _ = killpg(self.group, Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

struct Stat {
    group: i32,
    ticks: f64,
}

/// Every process of the machine.
fn stats() -> impl Iterator<Item = Stat> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|process| parse(&fs::read_to_string(process.path().join("stat")).ok()?))
}

fn parse(stat: &str) -> Option<Stat> {
    // The name, in parentheses, may hold anything; fields are counted after it.
    let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<f64>().ok();
    Some(Stat { group: number(2)? as i32, ticks: number(11)? + number(12)? })
}
