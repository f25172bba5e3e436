//! Where the body of an answer ends (RFC 9112 6.3), and what of it has come.

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, StatusCode, Version, header};
use httparse::Status;
use memchr::memchr_iter;

use super::head::{Head, MOST_FIELDS};
use crate::{reason::OriginFailure, rules::directives::number, target, wire::Parsed};

/// Bytes of all that stands beside the sizes of one body's chunks, and of its trailers.
const MOST_BESIDE: usize = 16 << 10;

/// What of a body is still to come.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// So many bytes, one at least.
    Length(u64),
    Chunked(Chunked),
    UntilClose,
    Over,
}

/// A body in chunks (RFC 9112 7.1).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Chunked {
    at: At,
    /// How much may still stand beside the sizes.
    beside: usize,
}

#[derive(Debug, PartialEq, Eq)]
enum At {
    Size,
    Data(u64),
    /// The line's end behind the data.
    DataEnd,
    Trailers,
}

/// What comes next.
pub(super) enum Piece {
    Data(Bytes),
    Trailers(HeaderMap),
    End,
    /// More must be read: about so many bytes.
    More(u64),
}

impl Framing {
    /// That of an answer, to HEAD or another request. One meaning, or none.
    pub(super) fn of(is_head: bool, head: &Head) -> Result<Self, OriginFailure> {
        let (status, headers) = (head.response.status(), head.response.headers());
        if is_head || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
            return Ok(Self::Over);
        }
        if headers.contains_key(header::TRANSFER_ENCODING) {
            // That of a coding other than chunked ends with the connection; none was asked for.
            let is_chunked = target::is_chunked(headers) && head.response.version() == Version::HTTP_11;
            let chunked = Self::Chunked(Chunked { at: At::Size, beside: MOST_BESIDE });
            return is_chunked.then_some(chunked).ok_or(OriginFailure::Protocol);
        }
        let mut lengths = headers.get_all(header::CONTENT_LENGTH).into_iter();
        let Some(first) = lengths.next() else { return Ok(Self::UntilClose) };
        // Said twice it is one length, too, if it is the same.
        let mut length = None;
        for line in std::iter::once(first).chain(lengths) {
            for text in line.to_str().map_err(|_| OriginFailure::Protocol)?.split(',').map(str::trim) {
                let said = number(text).ok_or(OriginFailure::Protocol)?;
                if *length.get_or_insert(said) != said {
                    return Err(OriginFailure::Protocol);
                }
            }
        }
        Ok(length.filter(|length| *length > 0).map_or(Self::Over, Self::Length))
    }

    /// Takes the next of the body from the buffer.
    pub(super) fn next(&mut self, buffer: &mut BytesMut) -> Result<Piece, OriginFailure> {
        let (piece, is_over) = match self {
            Self::Over => (Piece::End, true),
            Self::UntilClose if buffer.is_empty() => (Piece::More(u64::MAX), false),
            Self::UntilClose => (Piece::Data(buffer.split().freeze()), false),
            Self::Length(left) if buffer.is_empty() => (Piece::More(*left), false),
            Self::Length(left) => (Piece::Data(data(buffer, left)), *left == 0),
            Self::Chunked(chunked) => {
                let piece = chunked.next(buffer)?;
                let is_over = matches!(piece, Piece::End | Piece::Trailers(_));
                (piece, is_over)
            }
        };
        if is_over {
            *self = Self::Over;
        }
        Ok(piece)
    }
}

/// Whether a line ends without CR: others might not see an end there, or the next chunk behind it.
pub(crate) fn has_lone_lf(bytes: &[u8]) -> bool {
    memchr_iter(b'\n', bytes).any(|at| at == 0 || bytes[at - 1] != b'\r')
}

/// The next of `left` bytes.
fn data(buffer: &mut BytesMut, left: &mut u64) -> Bytes {
    let len = usize::try_from(*left).unwrap_or(usize::MAX).min(buffer.len());
    *left -= len as u64;
    buffer.split_to(len).freeze()
}

impl Chunked {
    fn next(&mut self, buffer: &mut BytesMut) -> Result<Piece, OriginFailure> {
        loop {
            match &mut self.at {
                At::Size => {
                    let Some(size) = self.size(buffer)? else { return Ok(Piece::More(0)) };
                    self.at = if size == 0 { At::Trailers } else { At::Data(size) };
                }
                At::Data(left) if buffer.is_empty() => return Ok(Piece::More(*left)),
                At::Data(left) => {
                    let bytes = data(buffer, left);
                    if *left == 0 {
                        self.at = At::DataEnd;
                    }
                    return Ok(Piece::Data(bytes));
                }
                At::DataEnd => match buffer[..] {
                    [b'\r', b'\n', ..] => {
                        buffer.advance(2);
                        self.at = At::Size;
                    }
                    [] | [b'\r'] => return Ok(Piece::More(0)),
                    _ => return Err(OriginFailure::Protocol),
                },
                At::Trailers if buffer.starts_with(b"\r\n") => {
                    buffer.advance(2);
                    return Ok(Piece::End);
                }
                At::Trailers => return self.trailers(buffer),
            }
        }
    }

    /// Of the next chunk, if its line is complete.
    fn size(&mut self, buffer: &mut BytesMut) -> Result<Option<u64>, OriginFailure> {
        let digits = buffer.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        if digits == 0 && !buffer.is_empty() {
            return Err(OriginFailure::Protocol);
        }
        match httparse::parse_chunk_size(buffer) {
            Ok(Status::Complete((len, size))) => {
                if has_lone_lf(&buffer[..len]) {
                    return Err(OriginFailure::Protocol);
                }
                self.beside = self.beside.checked_sub(len - 2 - digits).ok_or(OriginFailure::Protocol)?;
                buffer.advance(len);
                Ok(Some(size))
            }
            Ok(Status::Partial) if buffer.len() - digits <= self.beside => Ok(None),
            _ => Err(OriginFailure::Protocol),
        }
    }

    fn trailers(&mut self, buffer: &mut BytesMut) -> Result<Piece, OriginFailure> {
        let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
        let (len, fields) = match httparse::parse_headers(buffer, &mut fields) {
            Ok(Status::Complete((len, fields))) if len <= self.beside + 2 => {
                (len, Parsed::new(&buffer[..len]).fields(fields).ok_or(OriginFailure::Protocol)?)
            }
            Ok(Status::Partial) if buffer.len() <= self.beside => return Ok(Piece::More(0)),
            _ => return Err(OriginFailure::Protocol),
        };
        if has_lone_lf(&buffer[..len]) {
            return Err(OriginFailure::Protocol);
        }
        buffer.advance(len);
        Ok(Piece::Trailers(fields))
    }
}
