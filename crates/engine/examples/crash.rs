//! What a crash costs: nothing that was acknowledged, where each put is durable. The program kills itself again and
//! again while it puts, and looks each time for everything that it was told is safe.
//!
//!     cargo run --example crash -- safe.store

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use picaflor::{Durability, Mode, Options, Store};

fn open(path: &str) -> picaflor::Result<Store> {
    // A store never evicts; each put and each delete is durable when its call returns.
    let options = Options::new(path).capacity(64 << 20).memory(8 << 20).mode(Mode::Store);
    Store::open(options.durability(Durability::EveryPut).delete_bounds(Duration::from_secs(1), 1))
}

/// The other process: puts, and says so, until it is killed.
fn put_for_ever(path: &str, first: u64) -> picaflor::Result<()> {
    let store = open(path)?;
    for number in first.. {
        store.put(&number.to_le_bytes(), format!("body {number}").as_bytes())?;
        println!("{number}");
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let path = args.get(1).map_or("safe.store", String::as_str);
    if let Some(first) = args.get(2) {
        return Ok(put_for_ever(path, first.parse()?)?);
    }
    let mut safe = 0;
    for _ in 0..5 {
        let mut writer = Command::new(std::env::current_exe()?);
        let mut writer = writer.args([path, &safe.to_string()]).stdout(Stdio::piped()).spawn()?;
        let began = Instant::now();
        for line in BufReader::new(writer.stdout.take().ok_or("no output")?).lines() {
            safe = line?.parse::<u64>()? + 1;
            if began.elapsed() > Duration::from_millis(100) {
                // The signal that no process can catch.
                let _ = writer.kill();
            }
        }
        writer.wait()?;
    }
    let store = open(path)?;
    let mut lost = 0;
    for number in 0..safe {
        let found = store.get(&number.to_le_bytes())?.map(|object| object.body()).transpose()?;
        lost += u64::from(found.is_none_or(|body| body != format!("body {number}")));
    }
    println!("killed 5 times; {} puts were acknowledged, {lost} of them lost", safe);
    store.close()?;
    Ok(())
}
