//! The access log: combined, Squid's native form, or JSON. Lines are formatted into a buffer of the worker and
//! handed over in blocks, when 64 KiB are together or once a second, to one thread that writes them. When that
//! thread is 64 blocks behind, a block is dropped and its lines are counted. `reopen` serves log rotation.

use std::{
    borrow::Cow,
    cell::RefCell,
    fs::{File, OpenOptions},
    io::{self, Write},
    net::IpAddr,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread::JoinHandle,
};

use parking_lot::Mutex;

use crate::{
    config::{LogConfig, LogFormat},
    reason::{Outcome, REST_FROM_ORIGIN},
    wire::push_number,
};

/// One request, as the log sees it.
#[derive(Debug, Clone)]
pub(crate) struct Line<'a> {
    pub(crate) client: IpAddr,
    /// Whose it is, where that was asked.
    pub(crate) user: &'a str,
    /// When it began, milliseconds since 1970.
    pub(crate) began: u64,
    /// Milliseconds until the last byte was handed over.
    pub(crate) took: u64,
    pub(crate) method: &'a str,
    /// What the request line said.
    pub(crate) target: &'a str,
    /// `HTTP/1.1`, mostly.
    pub(crate) protocol: &'a str,
    /// What the client came by, and the host it named: they make a URL of a path.
    pub(crate) is_encrypted: bool,
    pub(crate) host: &'a str,
    pub(crate) status: u16,
    pub(crate) bytes: u64,
    pub(crate) referer: &'a str,
    pub(crate) agent: &'a str,
    pub(crate) content_type: &'a str,
    pub(crate) outcome: Outcome,
    /// Why, where the outcome has a reason.
    pub(crate) detail: &'a str,
    /// How the body ended, where it did not come from where it began, or not to its end.
    pub(crate) ending: &'a str,
    /// The second: the client has not all of it.
    pub(crate) is_cut: bool,
}

impl Line<'_> {
    /// The whole URL, as far as it is known.
    fn url(&self) -> Cow<'_, str> {
        if self.host.is_empty() || !self.target.starts_with('/') {
            return self.target.into();
        }
        let scheme = if self.is_encrypted { "https" } else { "http" };
        format!("{scheme}://{}{}", self.host, self.target).into()
    }
}

enum Message {
    /// Text, and how many lines that is.
    Block(Vec<u8>, u64),
    Reopen,
    End,
}

/// Where lines go.
pub(crate) struct Log {
    format: LogFormat,
    to: Option<SyncSender<Message>>,
    /// Lines that the writer could not write, until a worker counts them.
    lost: Arc<AtomicU64>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A worker's part of the log.
#[derive(Default)]
pub(crate) struct Buffer(Mutex<Pending>);

#[derive(Default)]
struct Pending {
    text: Vec<u8>,
    lines: u64,
}

const BLOCK: usize = 64 << 10;

impl Log {
    /// Opens the file, with the permissions `mode` if it is made; `off` opens nothing.
    pub(crate) fn open(config: &LogConfig, mode: u32) -> io::Result<Self> {
        let path = match config.to.as_str() {
            "off" | "" => {
                return Ok(Self { format: config.format, to: None, lost: Arc::default(), thread: Mutex::new(None) });
            }
            "stdout" => None,
            path => Some(PathBuf::from(path)),
        };
        let open = move || Sink::open(path.as_deref(), mode);
        let first = open()?;
        let (to, from) = sync_channel(64);
        let lost = Arc::<AtomicU64>::default();
        let losing = lost.clone();
        let write = move || write_all(&from, &open, first, &losing);
        let thread = std::thread::Builder::new().name("picaflor-log".into()).spawn(write)?;
        Ok(Self { format: config.format, to: Some(to), lost, thread: Mutex::new(Some(thread)) })
    }

    /// Whether lines are wanted at all.
    #[inline]
    pub(crate) fn on(&self) -> bool {
        self.to.is_some()
    }

    /// Whether lines say of what type a body is.
    pub(crate) fn tells_types(&self) -> bool {
        !matches!(self.format, LogFormat::Combined)
    }

    /// Formats a line; returns how many lines were lost, which is 0 but when the writer is far behind or fails.
    pub(crate) fn line(&self, buffer: &Buffer, line: &Line<'_>) -> u64 {
        let mut pending = buffer.0.lock();
        match self.format {
            LogFormat::Combined => combined(&mut pending.text, line),
            LogFormat::Squid => squid(&mut pending.text, line),
            LogFormat::Json => json(&mut pending.text, line),
        }
        pending.lines += 1;
        if pending.text.len() >= BLOCK { self.hand_over(&mut pending) } else { 0 }
    }

    /// Hands over what a worker has gathered.
    pub(crate) fn flush(&self, buffer: &Buffer) -> u64 {
        let mut pending = buffer.0.lock();
        if pending.text.is_empty() { self.lost.swap(0, Relaxed) } else { self.hand_over(&mut pending) }
    }

    fn hand_over(&self, pending: &mut Pending) -> u64 {
        let Some(to) = &self.to else { return 0 };
        let lines = std::mem::take(&mut pending.lines);
        let text = std::mem::replace(&mut pending.text, Vec::with_capacity(BLOCK + 4096));
        let unwritten = self.lost.swap(0, Relaxed);
        match to.try_send(Message::Block(text, lines)) {
            Ok(()) => unwritten,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => unwritten + lines,
        }
    }

    /// Opens the file anew, after a rotation moved it away.
    pub(crate) fn reopen(&self) {
        if let Some(to) = &self.to {
            let _ = to.send(Message::Reopen);
        }
    }

    /// Waits until everything handed over is written.
    pub(crate) fn close(&self) {
        if let Some(to) = &self.to {
            let _ = to.send(Message::End);
        }
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }
}

enum Sink {
    File(File),
    Stdout,
}

impl Sink {
    fn open(path: Option<&Path>, mode: u32) -> io::Result<Self> {
        match path {
            Some(path) => OpenOptions::new().create(true).append(true).mode(mode).open(path).map(Self::File),
            None => Ok(Self::Stdout),
        }
    }

    fn write(&mut self, block: &[u8]) -> io::Result<()> {
        match self {
            Self::File(file) => file.write_all(block),
            Self::Stdout => io::stdout().lock().write_all(block),
        }
    }
}

fn write_all(from: &Receiver<Message>, open: &impl Fn() -> io::Result<Sink>, mut sink: Sink, lost: &AtomicU64) {
    let mut complained = false;
    for message in from {
        match message {
            Message::Block(block, lines) => {
                if let Err(e) = sink.write(&block) {
                    lost.fetch_add(lines, Relaxed);
                    if !std::mem::replace(&mut complained, true) {
                        eprintln!("picaflor: access log: {e}; lines are being lost");
                    }
                }
            }
            Message::Reopen => match open() {
                Ok(new) => (sink, complained) = (new, false),
                Err(e) => eprintln!("picaflor: access log: {e}; keeping the old file"),
            },
            Message::End => return,
        }
    }
}

/// Quotes, backslashes and bytes outside printable ASCII are escaped, so that a client cannot forge a line.
fn escaped(out: &mut Vec<u8>, text: &str) {
    let mut rest = text.as_bytes();
    loop {
        let plain = rest.iter().position(|b| matches!(b, b'"' | b'\\') || !matches!(b, 0x20..=0x7e));
        out.extend_from_slice(&rest[..plain.unwrap_or(rest.len())]);
        let Some(at) = plain else { return };
        match rest[at] {
            byte @ (b'"' | b'\\') => out.extend_from_slice(&[b'\\', byte]),
            byte => drop(write!(out, "\\x{byte:02x}")),
        }
        rest = &rest[at + 1..];
    }
}

fn or_dash(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}

fn combined(out: &mut Vec<u8>, line: &Line<'_>) {
    let _ = write!(out, "{} - ", line.client);
    escaped(out, or_dash(line.user));
    out.extend_from_slice(b" [");
    push_day(out, line.began);
    out.extend_from_slice(b"] \"");
    out.extend_from_slice(line.method.as_bytes());
    out.push(b' ');
    escaped(out, line.target);
    out.push(b' ');
    escaped(out, line.protocol);
    out.extend_from_slice(b"\" ");
    push_number(out, line.status.into());
    out.push(b' ');
    push_number(out, line.bytes);
    out.extend_from_slice(b" \"");
    escaped(out, or_dash(line.referer));
    out.extend_from_slice(b"\" \"");
    escaped(out, or_dash(line.agent));
    out.extend_from_slice(b"\" ");
    out.extend_from_slice(line.outcome.name().as_bytes());
    for reason in [line.detail, line.ending].into_iter().filter(|reason| !reason.is_empty()) {
        out.push(b':');
        out.extend_from_slice(reason.as_bytes());
    }
    out.push(b'\n');
}

/// The day and the time; put together once a second.
fn push_day(out: &mut Vec<u8>, millis: u64) {
    thread_local! {
        static LATEST: RefCell<(u64, String)> = const { RefCell::new((u64::MAX, String::new())) };
    }
    LATEST.with_borrow_mut(|(second, text)| {
        if *second != millis / 1000 {
            (*second, *text) = (millis / 1000, day(millis));
        }
        out.extend_from_slice(text.as_bytes());
    });
}

fn squid(out: &mut Vec<u8>, line: &Line<'_>) {
    let (code, hierarchy) = match line.outcome {
        Outcome::HitFast | Outcome::HitMemory => ("TCP_MEM_HIT", "HIER_NONE"),
        Outcome::HitDevice => ("TCP_HIT", "HIER_NONE"),
        Outcome::HitStale => ("TCP_REFRESH_FAIL_OLD", "HIER_NONE"),
        Outcome::Revalidated => ("TCP_REFRESH_UNMODIFIED", "HIER_DIRECT"),
        Outcome::Collapsed => ("TCP_CF_HIT", "HIER_NONE"),
        Outcome::Miss | Outcome::Bypass => ("TCP_MISS", "HIER_DIRECT"),
        Outcome::Tunnel => ("TCP_TUNNEL", "HIER_DIRECT"),
        Outcome::Denied => ("TCP_DENIED", "HIER_NONE"),
        Outcome::Failed => ("TCP_MISS", "HIER_NONE"),
    };
    // Bytes came from the origin all the same.
    let hierarchy = if line.ending == REST_FROM_ORIGIN { "HIER_DIRECT" } else { hierarchy };
    let cut = if line.is_cut { "_ABORTED" } else { "" };
    let (seconds, millis) = (line.began / 1000, line.began % 1000);
    let (status, bytes, method) = (line.status, line.bytes, line.method);
    let _ =
        write!(out, "{seconds}.{millis:03} {:6} {} {code}{cut}/{status:03} {bytes} {method} ", line.took, line.client);
    for byte in line.url().bytes() {
        match byte {
            0x21..=0x7e => out.push(byte),
            _ => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    let kind = line.content_type.split([';', ' ']).next().unwrap_or_default();
    out.push(b' ');
    escaped(out, or_dash(line.user));
    let _ = write!(out, " {hierarchy}/- ");
    escaped(out, or_dash(kind));
    out.push(b'\n');
}

fn json(out: &mut Vec<u8>, line: &Line<'_>) {
    let value = serde_json::json!({
        "time": line.began as f64 / 1000.0, "client": line.client.to_string(), "user": line.user, "method": line.method,
        "url": line.url(), "protocol": line.protocol, "status": line.status, "bytes": line.bytes, "took_ms": line.took,
        "outcome": line.outcome.name(), "detail": line.detail, "ending": line.ending, "referer": line.referer, "agent": line.agent,
        "content_type": line.content_type,
    });
    let _ = serde_json::to_writer(&mut *out, &value);
    out.push(b'\n');
}

/// `10/Oct/2000:13:55:36 +0000`.
fn day(millis: u64) -> String {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let seconds = millis / 1000;
    // Days since 0000-03-01, so that the leap day is the last of its year (Howard Hinnant's civil_from_days).
    let days = seconds / 86_400 + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 2 } else { shifted - 10 };
    let year = era * 400 + year_of_era + u64::from(month < 2);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let mut text = String::with_capacity(32);
    let _ = std::fmt::Write::write_fmt(
        &mut text,
        format_args!("{day:02}/{}/{year}:{hour:02}:{minute:02}:{second:02} +0000", MONTHS[month as usize % 12]),
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample<'a>() -> Line<'a> {
        Line {
            client: [127, 0, 0, 1].into(),
            user: "",
            began: 971_186_136_042,
            took: 7,
            method: "GET",
            target: "/a\"b\n",
            protocol: "HTTP/1.0",
            is_encrypted: false,
            host: "h",
            status: 200,
            bytes: 2326,
            referer: "",
            agent: "x \\ y",
            content_type: "text/html; charset=utf-8",
            outcome: Outcome::Miss,
            detail: "",
            ending: "",
            is_cut: false,
        }
    }

    fn text(format: fn(&mut Vec<u8>, &Line<'_>)) -> String {
        let mut out = Vec::new();
        format(&mut out, &sample());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_form_is_one_line_that_a_client_cannot_forge() {
        let combined = text(combined);
        assert_eq!(
            combined,
            "127.0.0.1 - - [10/Oct/2000:13:55:36 +0000] \"GET /a\\\"b\\x0a HTTP/1.0\" 200 2326 \"-\" \"x \\\\ y\" miss\n"
        );
        assert_eq!(
            text(squid),
            "971186136.042      7 127.0.0.1 TCP_MISS/200 2326 GET http://h/a\"b%0A - HIER_DIRECT/- text/html\n"
        );
        let value: serde_json::Value = serde_json::from_str(&text(json)).unwrap();
        assert_eq!(value["outcome"], "miss");
        assert_eq!(value["took_ms"], 7);
    }

    #[test]
    fn each_form_says_how_a_body_ended() {
        let cut =
            || Line { outcome: Outcome::HitDevice, detail: "", ending: "cut-unreadable", is_cut: true, ..sample() };
        let stale = Line { outcome: Outcome::HitStale, detail: "connect", ending: REST_FROM_ORIGIN, ..sample() };
        let said = |format: fn(&mut Vec<u8>, &Line<'_>), line: &Line<'_>| {
            let mut out = Vec::new();
            format(&mut out, line);
            String::from_utf8(out).unwrap()
        };
        assert!(said(combined, &cut()).ends_with(" hit-device:cut-unreadable\n"));
        assert!(said(combined, &stale).ends_with(" hit-stale:connect:rest-from-origin\n"));
        assert!(said(squid, &cut()).contains(" TCP_HIT_ABORTED/200 2326 "));
        assert!(said(squid, &stale).contains(" HIER_DIRECT/- "));
        let value: serde_json::Value = serde_json::from_str(&said(json, &cut())).unwrap();
        assert_eq!(value["ending"], "cut-unreadable");
    }

    #[test]
    fn days_of_leap_years() {
        assert_eq!(day(951_782_400_000), "29/Feb/2000:00:00:00 +0000");
        assert_eq!(day(1_709_164_800_000), "29/Feb/2024:00:00:00 +0000");
        assert_eq!(day(0), "01/Jan/1970:00:00:00 +0000");
        assert_eq!(day(1_735_689_599_000), "31/Dec/2024:23:59:59 +0000");
    }

    #[test]
    fn rotation_goes_on_in_the_new_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.log");
        let config = LogConfig { format: LogFormat::Combined, to: path.display().to_string() };
        let (log, buffer) = (Log::open(&config, 0o600).unwrap(), Buffer::default());
        log.line(&buffer, &sample());
        log.flush(&buffer);
        std::thread::sleep(std::time::Duration::from_millis(50));
        std::fs::rename(&path, folder.path().join("a.log.1")).unwrap();
        log.reopen();
        log.line(&buffer, &sample());
        log.flush(&buffer);
        log.close();
        for name in ["a.log", "a.log.1"] {
            assert_eq!(std::fs::read_to_string(folder.path().join(name)).unwrap().lines().count(), 1, "{name}");
        }
    }
}
