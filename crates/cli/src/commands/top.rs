//! `picaflor top`: what a running server does now, from two answers of its admin listener.

use std::{
    io::{IsTerminal, Write},
    time::{Duration, Instant},
};

use clap::Args;
use crossterm::{
    cursor,
    event::{self, Event, KeyCode, KeyModifiers},
    execute, queue,
    style::Print,
    terminal,
};
use hyper::Uri;
use picaflor_proxy::config::Span;
use serde_json::Value;

use super::{
    Failure,
    server::{Admin, number},
};
use crate::{human, key, output::Output};

const EXAMPLES: &str = "\
Examples:
  The server of this folder, each second; q ends it:
      picaflor top

  Another one, every five seconds:
      picaflor top --admin http://127.0.0.1:3129 --token-file /srv/picaflor.store.token --interval 5s

  One look, as plain lines for a script: what happened in one interval:
      picaflor top --once

Rates are of the last interval; latency is the time to the head of an answer, of those that were no hit in memory.";

/// Shows what a running server does now
#[derive(Args)]
#[command(after_long_help = EXAMPLES, after_help = "`picaflor top --help` has examples.")]
pub(crate) struct Top {
    #[command(flatten)]
    admin: Admin,
    /// Time between two looks, from 100ms
    #[arg(long, value_name = "TIME", default_value = "1s")]
    interval: Span,
    /// Print one interval in plain lines, and end
    #[arg(long)]
    once: bool,
}

impl Top {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let interval = self.interval.0;
        if interval < Duration::from_millis(100) {
            return Err(Failure::Usage("--interval: at least 100ms, for each look asks the server".into()));
        }
        if !self.once && !std::io::stdout().is_terminal() {
            return Err(Failure::Usage("standard output is no terminal: say --once for plain lines".into()));
        }
        let server = self.admin.server()?;
        let look = || Ok::<_, Failure>((Instant::now(), server.ask("/stats")?));
        let mut before = look()?;
        if self.once {
            std::thread::sleep(interval);
            let mut out = Output::new();
            let now = look()?;
            out.bytes((lines(&self.admin.admin, &before.1, &now.1, now.0 - before.0).join("\n") + "\n").as_bytes())?;
            return out.flush();
        }
        let screen = Screen::new()?;
        loop {
            if screen.is_ended_within(interval)? {
                return Ok(());
            }
            let now = look()?;
            screen.show(&lines(&self.admin.admin, &before.1, &now.1, now.0 - before.0))?;
            before = now;
        }
    }
}

/// The terminal, taken over until this is dropped.
struct Screen;

fn terminal_failed(error: std::io::Error) -> Failure {
    Failure::Failed(format!("the terminal: {error}; --once needs none"))
}

impl Screen {
    fn new() -> Result<Self, Failure> {
        terminal::enable_raw_mode().map_err(terminal_failed)?;
        let screen = Self;
        execute!(std::io::stdout(), terminal::EnterAlternateScreen, cursor::Hide).map_err(terminal_failed)?;
        screen.show(&["looking\u{2026}".into()])?;
        Ok(screen)
    }

    fn show(&self, lines: &[String]) -> Result<(), Failure> {
        let draw = || {
            // Some do not know theirs.
            let (width, height) = Some(terminal::size()?).filter(|size| size.0 > 0 && size.1 > 0).unwrap_or((80, 24));
            let mut out = std::io::stdout().lock();
            queue!(out, terminal::BeginSynchronizedUpdate, terminal::Clear(terminal::ClearType::All))?;
            for (row, line) in (0..height).zip(lines) {
                let line: String = line.chars().take(width.into()).collect();
                queue!(out, cursor::MoveTo(0, row), Print(line))?;
            }
            queue!(out, terminal::EndSynchronizedUpdate)?;
            out.flush()
        };
        draw().map_err(terminal_failed)
    }

    /// Waits. True if a key ended it.
    fn is_ended_within(&self, time: Duration) -> Result<bool, Failure> {
        let until = Instant::now() + time;
        while event::poll(until.saturating_duration_since(Instant::now())).map_err(terminal_failed)? {
            let Event::Key(key) = event::read().map_err(terminal_failed)? else { continue };
            let is_break = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
            if is_break || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = execute!(std::io::stdout(), terminal::LeaveAlternateScreen, cursor::Show);
        let _ = terminal::disable_raw_mode();
    }
}

/// What happened between two answers.
fn lines(admin: &Uri, before: &Value, now: &Value, time: Duration) -> Vec<String> {
    let seconds = time.as_secs_f64().max(1e-3);
    let grown = |at: &str| number(now, at).saturating_sub(number(before, at));
    let rate = |n: u64| human::count((n as f64 / seconds).round() as u64);
    let flow = |at: &str| human::size((grown(at) as f64 / seconds) as u64);
    let sum = |names: &[&str]| names.iter().map(|name| grown(&format!("/proxy/requests/{name}"))).sum::<u64>();
    let hits = sum(&["hit-fast", "hit-memory", "hit-device", "hit-stale", "revalidated", "collapsed"]);
    let answered = hits + sum(&["miss", "bypass"]);
    let all: u64 = names(now, "/proxy/requests").iter().map(|name| grown(&format!("/proxy/requests/{name}"))).sum();
    let (sent, fetched) = (grown("/proxy/client_bytes"), grown("/proxy/origin_bytes"));
    let version = now.get("version").and_then(Value::as_str).map(key::harmless).unwrap_or_default();
    let up = human::span(number(now, "/uptime_seconds"));
    let open = number(now, "/proxy/connections").saturating_sub(number(now, "/proxy/connections_closed"));
    let fills = number(now, "/proxy/fills").saturating_sub(number(now, "/proxy/fills_ended"));
    let mut out = vec![
        format!("picaflor {version} at {admin}, up {up}"),
        format!("requests    {}/s, {} connections, {} fetches", rate(all), human::count(open), human::count(fills)),
        format!(
            "hit ratio   {} of requests, {} of bytes",
            human::share(hits, answered),
            human::share(sent.saturating_sub(fetched), sent)
        ),
        format!(
            "traffic     {}/s to clients, {}/s from origins",
            flow("/proxy/client_bytes"),
            flow("/proxy/origin_bytes")
        ),
        format!("latency     {}", latency(before, now)),
    ];
    let outcomes: Vec<String> = names(now, "/proxy/requests")
        .iter()
        .map(|name| (name, grown(&format!("/proxy/requests/{name}"))))
        .filter(|(_, n)| *n > 0)
        .map(|(name, n)| format!("{} {}/s", key::harmless(name), rate(n)))
        .collect();
    out.push(format!("outcomes    {}", if outcomes.is_empty() { "none".into() } else { outcomes.join(", ") }));
    let failures: u64 =
        names(now, "/proxy/origin_failures").iter().map(|name| grown(&format!("/proxy/origin_failures/{name}"))).sum();
    let origins: Vec<String> = now.get("origins").and_then(Value::as_array).into_iter().flatten().map(origin).collect();
    out.push(format!("origins     {} failures/s{}", rate(failures), origins.concat()));
    let store = |at: &str| number(now, &format!("/store/{at}"));
    let room: u64 = volumes(now).map(|volume| number(volume, "/room_bytes")).sum();
    out.push(format!(
        "memory      {} of {}, {} objects",
        human::size(store("memory_used")),
        human::size(store("memory_limit")),
        human::count(store("memory_objects"))
    ));
    out.push(format!(
        "store       {} of {} live ({}), {} entries, {}/s read, {}/s written, {} evicted/s",
        human::size(store("live_bytes")),
        human::size(room),
        human::share(store("live_bytes"), room),
        human::count(store("objects")),
        flow("/store/counts/device_read"),
        flow("/store/counts/device_written"),
        rate(grown("/store/counts/evicted")),
    ));
    let failed = volumes(now).filter_map(|volume| volume.get("failed").and_then(Value::as_str));
    out.extend(failed.map(|why| format!("FAILED      {}", key::harmless(why))));
    let purges = |name: &str| number(now, &format!("/purges/{name}"));
    out.push(format!(
        "purges      {} noted of {}, {} pinned, {} refused, {} objects swept, {} made stale",
        human::count(purges("noted")),
        human::count(purges("room")),
        human::count(purges("pinned")),
        human::count(purges("refused")),
        human::count(purges("swept")),
        human::count(purges("made_stale")),
    ));
    out
}

fn volumes(now: &Value) -> impl Iterator<Item = &Value> {
    now.pointer("/store/volumes").and_then(Value::as_array).into_iter().flatten()
}

fn names<'a>(value: &'a Value, at: &str) -> Vec<&'a str> {
    value.pointer(at).and_then(Value::as_object).into_iter().flatten().map(|(name, _)| &**name).collect()
}

fn origin(origin: &Value) -> String {
    let url = origin.get("url").and_then(Value::as_str).map(key::harmless).unwrap_or_default();
    let paused = if origin.get("paused").and_then(Value::as_bool) == Some(true) { " (not asked: silent)" } else { "" };
    format!(", {url}{paused}")
}

/// Of the answers that were no hits in memory, by the histogram's bounds.
fn latency(before: &Value, now: &Value) -> String {
    let counts = |of: &Value| -> Vec<u64> {
        let counts = of.pointer("/proxy/response_head/counts").and_then(Value::as_array);
        counts.into_iter().flatten().filter_map(Value::as_u64).collect()
    };
    let earlier = counts(before);
    let grown: Vec<u64> =
        counts(now).iter().enumerate().map(|(n, now)| now - earlier.get(n).unwrap_or(&0).min(now)).collect();
    let all: u64 = grown.iter().sum();
    if all == 0 {
        return "none but hits in memory".into();
    }
    let at = |share: f64| {
        let (mut seen, wanted) = (0, (all as f64 * share).ceil() as u64);
        let bucket = grown.iter().position(|n| {
            seen += n;
            seen >= wanted
        });
        let bound = bucket.map(|n| number(now, &format!("/proxy/response_head/micros/{n}"))).filter(|bound| *bound > 0);
        bound.map_or("over 30 s".into(), |bound| format!("at most {} ms", bound as f64 / 1000.0))
    };
    format!("median {}, p99 {}, of {} answers", at(0.5), at(0.99), human::count(all))
}
