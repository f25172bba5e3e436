//! Runs models: a few threads on one mechanism, or on a whole engine, under schedules that follow from a seed.
//!
//! Each model has a canary: a fault that is planted in the model, never in what it models, and that some schedule must
//! show. A model that does not find its own canary proves nothing. `scripts/scheduler` builds and runs them.

use std::{
    env,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    thread,
};

use shuttle::{
    Config, FailurePersistence, MaxSteps, Runner,
    rand::Rng,
    scheduler::{PctScheduler, RandomScheduler},
};

/// Schedules that one seed means, of each scheduler. The second one learns from the first of them how long they are.
const SCHEDULES: usize = 8;
/// Seeds, where the environment does not say how many.
const SEEDS: u64 = 24;
/// Seeds within which a canary must be found.
const CANARY_SEEDS: u64 = 200;
/// Steps after which threads do nothing but wait for each other.
const STEPS: usize = 4_000_000;
/// Bytes of a thread's stack.
const STACK: usize = 1 << 20;

/// How a thread is chosen.
#[derive(Clone, Copy)]
enum Choice {
    /// Any, at each step.
    Random,
    /// The one of highest priority, which changes this often (PCT: Burckhardt et al., ASPLOS 2010).
    Priority(usize),
}

/// A random number of this execution.
pub fn draw(range: Range<u64>) -> u64 {
    shuttle::rand::thread_rng().gen_range(range)
}

fn number(name: &str, otherwise: u64) -> u64 {
    env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(otherwise)
}

/// Runs a model under the schedules of a seed. What went wrong, if something did.
fn run(seed: u64, choice: Choice, model: impl Fn() + Copy + Send + Sync + 'static) -> Option<String> {
    // A thread for each: what a failed execution leaves behind in a thread's own variables goes with it.
    let run = move || {
        let mut config = Config::new();
        config.stack_size = STACK;
        config.failure_persistence = FailurePersistence::None;
        config.max_steps = MaxSteps::FailAfter(STEPS);
        config.silence_warnings = true;
        let run = || match choice {
            Choice::Random => Runner::new(RandomScheduler::new_from_seed(seed, SCHEDULES), config).run(model),
            Choice::Priority(depth) => {
                Runner::new(PctScheduler::new_from_seed(seed, depth, SCHEDULES), config).run(model)
            }
        };
        let panic = catch_unwind(AssertUnwindSafe(run)).err()?;
        let text = panic.downcast_ref::<String>().cloned();
        Some(text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).into())).unwrap_or_default())
    };
    thread::spawn(run).join().unwrap_or_else(|_| Some("the scheduler itself ended in a panic".into()))
}

/// The first of these seeds that shows something, and what.
fn search(seeds: Range<u64>, model: impl Fn() + Copy + Send + Sync + 'static) -> Option<(u64, String)> {
    seeds.into_iter().find_map(|seed| {
        let choices = [Choice::Random, Choice::Priority(2 + seed as usize % 4)];
        choices.into_iter().find_map(|choice| run(seed, choice, model)).map(|why| (seed, why))
    })
}

/// No schedule may show a fault.
pub fn holds(name: &str, model: impl Fn() + Copy + Send + Sync + 'static) {
    let from = number("SCHEDULER_FROM", 0);
    let seeds = from..from + number("SCHEDULER_SEEDS", SEEDS);
    println!("{name}: seeds {} to {}, {} schedules each", seeds.start, seeds.end - 1, 2 * SCHEDULES);
    if let Some((seed, why)) = search(seeds, model) {
        panic!("{name}, seed {seed}: {why}\nagain: scripts/scheduler --from {seed} --seeds 1 {name}");
    }
}

/// Some schedule must show what was planted, and say it in these words.
pub fn finds(name: &str, words: &str, model: impl Fn() + Copy + Send + Sync + 'static) {
    match search(0..CANARY_SEEDS, model) {
        Some((seed, why)) if why.contains(words) => println!("{name}: caught with seed {seed}: {why}"),
        Some((seed, why)) => panic!("{name}, seed {seed}: not {words:?}, but {why}"),
        None => panic!("{name}: nothing found in {CANARY_SEEDS} seeds; the model proves nothing"),
    }
}
