//! Lines of any file, in bounded memory: what is longer than [`LONGEST`] is a bad line, not a full heap.

use std::io::{self, BufRead};

/// Longest line, in bytes. URLs end at a tenth of that in any server's defaults.
pub(super) const LONGEST: usize = 64 << 10;

pub(super) struct Lines<R> {
    input: R,
    buffer: Vec<u8>,
}

/// One line, without its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Read<'a> {
    Line(&'a [u8]),
    TooLong,
    End,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, buffer: Vec::new() }
    }

    pub(super) fn next(&mut self) -> io::Result<Read<'_>> {
        self.buffer.clear();
        let (mut any, mut dropped) = (false, false);
        loop {
            let chunk = self.input.fill_buf()?;
            if chunk.is_empty() {
                break;
            }
            any = true;
            let end = chunk.iter().position(|b| *b == b'\n');
            let used = end.unwrap_or(chunk.len());
            if self.buffer.len() + used > LONGEST {
                dropped = true;
            } else {
                self.buffer.extend_from_slice(&chunk[..used]);
            }
            self.input.consume(used + usize::from(end.is_some()));
            if end.is_some() {
                break;
            }
        }
        Ok(match (any, dropped) {
            (false, _) => Read::End,
            (true, true) => Read::TooLong,
            (true, false) => Read::Line(self.buffer.strip_suffix(b"\r").unwrap_or(&self.buffer)),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn lines_of_all_lengths() {
        let long = vec![b'x'; LONGEST + 1];
        let text = [b"a\r\n\n", &long[..], b"\nlast"].concat();
        let mut lines = Lines::new(io::BufReader::with_capacity(7, &text[..]));
        assert_eq!(lines.next().unwrap(), Read::Line(b"a"));
        assert_eq!(lines.next().unwrap(), Read::Line(b""));
        assert_eq!(lines.next().unwrap(), Read::TooLong);
        assert_eq!(lines.next().unwrap(), Read::Line(b"last"));
        assert_eq!(lines.next().unwrap(), Read::End);
    }
}
