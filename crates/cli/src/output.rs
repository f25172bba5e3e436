//! Standard output that may be closed early, and progress bars that only people see.

use std::{
    io::{self, BufWriter, ErrorKind, IsTerminal, StdoutLock, Write},
    thread,
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::commands::Failure;

/// A line of a server, which goes on whether it is read or not.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($text)*);
    }};
}
pub(crate) use say;

/// Standard output, buffered; a reader that goes away, as `head` does, ends the command in peace.
pub(crate) struct Output(BufWriter<StdoutLock<'static>>);

impl Output {
    pub(crate) fn new() -> Self {
        Self(BufWriter::with_capacity(64 << 10, io::stdout().lock()))
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.0.write_all(bytes).map_err(failure)
    }

    pub(crate) fn line(&mut self, text: impl AsRef<str>) -> Result<(), Failure> {
        self.bytes(text.as_ref().as_bytes())?;
        self.bytes(b"\n")
    }

    /// One JSON value on a line of its own.
    pub(crate) fn json(&mut self, value: &impl serde::Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string(value).map_err(|e| Failure::Failed(format!("writing JSON: {e}")))?;
        self.line(text)
    }

    /// Hands over what is buffered. Without this an error at the very end would be lost.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.0.flush().map_err(failure)
    }
}

fn failure(e: io::Error) -> Failure {
    match e.kind() {
        ErrorKind::BrokenPipe => Failure::ReaderGone,
        _ => Failure::Failed(format!("writing to standard output: {e}")),
    }
}

/// Whether standard output is a terminal.
pub(crate) fn to_terminal() -> bool {
    io::stdout().is_terminal()
}

const BAR: &str = "{msg} [{bar:30}] {percent}% {elapsed}, {eta} left";
const BYTES: &str = "{msg} [{bar:30}] {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
const UNKNOWN: &str = "{msg} {spinner} {bytes}, {bytes_per_sec}";
const WAIT: &str = "{msg} {spinner} {elapsed}";

fn bar(len: Option<u64>, template: &str, what: String) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(len, ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_message(what);
    bar
}

/// Of steps whose number is known later; on standard error, if that is a terminal.
pub(crate) fn steps(what: impl Into<String>) -> ProgressBar {
    bar(Some(0), BAR, what.into())
}

/// As [`steps`], but silent when standard output is the same terminal and lines stream to it.
pub(crate) fn steps_beside_lines(what: impl Into<String>) -> ProgressBar {
    if to_terminal() { ProgressBar::hidden() } else { steps(what) }
}

/// Of bytes, in all if that is known.
pub(crate) fn bytes(what: impl Into<String>, len: Option<u64>) -> ProgressBar {
    bar(len, if len.is_some() { BYTES } else { UNKNOWN }, what.into())
}

/// Of something that cannot say how far it is.
pub(crate) fn waiting(what: impl Into<String>) -> ProgressBar {
    let bar = bar(None, WAIT, what.into());
    if !bar.is_hidden() {
        let shown = bar.downgrade();
        // Without a thread it stands still.
        let _ = thread::Builder::new().name("picaflor-bar".into()).spawn(move || {
            while let Some(bar) = shown.upgrade().filter(|bar| !bar.is_finished()) {
                bar.tick();
                drop(bar);
                thread::sleep(Duration::from_millis(200));
            }
        });
    }
    bar
}
