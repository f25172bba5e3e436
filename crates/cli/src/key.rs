//! Keys are bytes. Shown, they are one line of harmless text: what cannot be seen, and the backslash, is written
//! `\\`, `\n`, `\r`, `\t` or `\xNN`, so a key can neither hide nor drive the terminal. With `--escaped` that form is
//! read back, so any key that `ls` shows can be given to another command.

use std::{ffi::OsStr, fmt::Write as _, os::unix::ffi::OsStrExt};

use clap::Args;

/// How keys are written on the command line.
#[derive(Args)]
pub(crate) struct KeyForm {
    /// Keys are written as `ls` shows them: \\, \n, \r, \t and \xNN stand for bytes
    #[arg(short, long)]
    escaped: bool,
}

impl KeyForm {
    /// The key that an argument or a line means.
    pub(crate) fn read(&self, text: &[u8]) -> Result<Vec<u8>, String> {
        if self.escaped { unescape(text) } else { Ok(text.to_vec()) }
    }

    /// The key that an argument means.
    pub(crate) fn argument(&self, text: &OsStr) -> Result<Vec<u8>, String> {
        self.read(text.as_bytes())
    }
}

/// The key as one line of harmless text.
pub(crate) fn shown(key: &[u8]) -> String {
    let mut out = String::with_capacity(key.len());
    for chunk in key.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' | '\'' => out.push(c),
                '\\' | '\n' | '\r' | '\t' => out.extend(c.escape_default()),
                // What the standard library would not print as it is: control and format characters, and such.
                _ if c.escape_debug().nth(1).is_some() => {
                    c.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| hex(&mut out, byte));
                }
                _ => out.push(c),
            }
        }
        chunk.invalid().iter().for_each(|byte| hex(&mut out, *byte));
    }
    out
}

/// Text of ours or of the engine that quotes keys, made harmless; line feeds stay.
pub(crate) fn harmless(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect()
}

fn hex(out: &mut String, byte: u8) {
    // Writing to a string cannot fail.
    let _ = write!(out, "\\x{byte:02x}");
}

fn unescape(text: &[u8]) -> Result<Vec<u8>, String> {
    let bad = |what: &[u8]| {
        let (what, all) = (shown(what), shown(text));
        format!(
            "`\\{what}` in the key `{all}` is none of \\\\, \\n, \\r, \\t, \\xNN; without --escaped keys are taken as they are"
        )
    };
    let mut key = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'\\' {
            key.push(*first);
            continue;
        }
        let (byte, tail) = match tail {
            [b'\\', tail @ ..] => (b'\\', tail),
            [b'n', tail @ ..] => (b'\n', tail),
            [b'r', tail @ ..] => (b'\r', tail),
            [b't', tail @ ..] => (b'\t', tail),
            [b'x', high, low, tail @ ..] => {
                let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
                let (Some(high), Some(low)) = (digit(*high), digit(*low)) else { return Err(bad(&rest[..3])) };
                (high * 16 + low, tail)
            }
            other => return Err(bad(&other[..other.len().min(1)])),
        };
        key.push(byte);
        rest = tail;
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_harmless_and_comes_back() {
        for (key, text) in [
            (&b"http://a/b?c=\"d\"&e='f'"[..], "http://a/b?c=\"d\"&e='f'"),
            ("h\u{fc}tte \u{5c0f}".as_bytes(), "h\u{fc}tte \u{5c0f}"),
            (b"a\\b", "a\\\\b"),
            (b"a\nb\r\tc\0", "a\\nb\\r\\tc\\x00"),
            (b"\x1b[31mred", "\\x1b[31mred"),
            (b"\xff\xfea", "\\xff\\xfea"),
            ("a\u{202e}b".as_bytes(), "a\\xe2\\x80\\xaeb"),
        ] {
            assert_eq!(shown(key), text);
            assert_eq!(unescape(text.as_bytes()).unwrap(), key);
        }
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(unescape(shown(&all).as_bytes()).unwrap(), all);
    }

    #[test]
    fn a_wrong_escape_is_named() {
        for (bad, part) in [("a\\q", "`\\q`"), ("a\\x1g", "`\\x1g`"), ("a\\", "`\\`"), ("a\\x1", "`\\x`")] {
            assert!(unescape(bad.as_bytes()).unwrap_err().contains(part), "{bad}");
        }
    }
}
