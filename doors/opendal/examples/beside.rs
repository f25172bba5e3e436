//! This service beside others of OpenDAL's, for the table of the README: writes, hits, memory; it ends by `kill -9`,
//! and with `after` says what is there then.
//!
//! `beside picaflor|picaflor-in-memory|moka|fs OBJECTS BYTES FOLDER [after]`

use std::time::Instant;

use doors_kit::beside::{die, print_tails, random, resident};
use opendal::{Operator, services};
use picaflor_opendal::{Picaflor, picaflor::Options};

const HITS: usize = 200_000;
/// Written just before the process kills itself.
const LATE: usize = 1000;

fn path(number: usize) -> String {
    format!("object/{number}")
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let number = |at: usize, or: usize| arguments.get(at).and_then(|number| number.parse().ok()).unwrap_or(or);
    let (objects, bytes) = (number(1, 100_000), number(2, 4096));
    let folder = arguments.get(3).map_or("beside", String::as_str);
    let store = || Options::new(format!("{folder}/beside.store")).capacity(4 << 30);
    let operator = match arguments.first().map(String::as_str) {
        Some("picaflor") => Operator::new(Picaflor::new(store().memory(64 << 20)))?,
        Some("picaflor-in-memory") => Operator::new(Picaflor::new(store().memory(1 << 30)))?,
        Some("moka") => Operator::new(services::Moka::default())?,
        Some("fs") => Operator::new(services::Fs::default().root(folder))?,
        _ => return Err("usage: beside picaflor|picaflor-in-memory|moka|fs OBJECTS BYTES FOLDER [after]".into()),
    };
    if arguments.get(4).is_some_and(|word| word == "after") {
        let (mut all, mut late) = (0, 0);
        for number in 0..objects {
            all += usize::from(operator.exists(&path(number)).await?);
        }
        for number in 0..LATE {
            late += usize::from(operator.exists(&format!("late/{number}")).await?);
        }
        println!("after kill -9: {all} of {objects}, and {late} of the last {LATE}");
        return Ok(());
    }
    let (before, begin) = (resident(), Instant::now());
    for number in 0..objects {
        let body: Vec<u8> = (0..bytes).map(|at| (at * 31 + number) as u8).collect();
        operator.write(&path(number), body).await?;
    }
    println!("writes: {:.1} us each", begin.elapsed().as_secs_f64() * 1e6 / objects as f64);
    println!("memory: {} bytes an object", resident().saturating_sub(before) / objects as u64);
    let mut times = Vec::with_capacity(HITS);
    for number in random(HITS, objects) {
        let path = path(number);
        let begin = Instant::now();
        let body = operator.read(&path).await?;
        times.push(begin.elapsed());
        assert_eq!(body.len(), bytes);
    }
    print_tails("hits", times);
    for number in 0..LATE {
        operator.write(&format!("late/{number}"), vec![1; bytes]).await?;
    }
    die()
}
