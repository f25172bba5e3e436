//! From a path to the bytes of a trace: `-` is standard input, gzip and zstd are undone by their magic numbers.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Cursor, Read},
    path::Path,
};

use flate2::bufread::MultiGzDecoder;

use crate::{Error, Result};

/// How much of the beginning is looked at to find the format, in bytes: a thousand lines and more, so that some at the
/// beginning that make no sense do not decide.
pub(super) const SAMPLE: usize = 256 << 10;

/// What some programs put before a text in UTF-8. It is no part of it: HAR 1.2 asks its readers to pass over it.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A trace's bytes, and the first of them once more, to find out what they are.
pub(super) struct Opened {
    pub(super) name: String,
    pub(super) sample: Vec<u8>,
    pub(super) input: Box<dyn BufRead + Send>,
}

pub(super) fn path(path: &Path) -> Result<Opened> {
    if path.as_os_str() == "-" {
        return bytes("standard input".into(), Box::new(io::stdin()));
    }
    let file = File::open(path).map_err(Error::file("opening", path))?;
    bytes(path.display().to_string(), Box::new(file))
}

pub(super) fn bytes(name: String, input: Box<dyn Read + Send>) -> Result<Opened> {
    let fail = |name: &str, source: io::Error| Error::Trace { name: name.into(), why: broken(&source) };
    let mut input = BufReader::with_capacity(256 << 10, input);
    let mut magic = Vec::with_capacity(4);
    Read::by_ref(&mut input).take(4).read_to_end(&mut magic).map_err(|e| fail(&name, e))?;
    let whole = Cursor::new(magic.clone()).chain(input);
    let mut plain: Box<dyn Read + Send> = match magic[..] {
        [0x1f, 0x8b, ..] => Box::new(MultiGzDecoder::new(whole)),
        [0x28, 0xb5, 0x2f, 0xfd] => Box::new(zstd::Decoder::with_buffer(whole).map_err(|e| fail(&name, e))?),
        _ => Box::new(whole),
    };
    let mut sample = Vec::with_capacity(SAMPLE);
    plain.by_ref().take(SAMPLE as u64).read_to_end(&mut sample).map_err(|e| fail(&name, e))?;
    // A text has no zeros; in binary records the three bytes are a number.
    if sample.starts_with(BYTE_ORDER_MARK) && !sample.contains(&0) {
        sample.drain(..BYTE_ORDER_MARK.len());
    }
    let input = BufReader::with_capacity(256 << 10, Cursor::new(sample.clone()).chain(plain));
    Ok(Opened { name, sample, input: Box::new(input) })
}

/// What a failing read means, and what helps.
pub(super) fn broken(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "the compressed data ends in the middle: copy the file again".into(),
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => format!("the compressed data is damaged: {error}"),
        _ => format!("cannot be read: {error}"),
    }
}
