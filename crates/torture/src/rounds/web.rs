//! HTTP/1.1 between the clients of proxied rounds, the proxy and their origin, as far as these need it.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// The host that clients name.
pub(super) const HOST: &str = "rounds.example";
/// An answer that takes longer does not come.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest line that is read.
const LINE: u64 = 16 << 10;

/// A request, or an answer.
pub(super) struct Message {
    pub(super) first: String,
    fields: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

/// A line without its end; `None` at the end of the connection.
fn line(from: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = String::new();
    let read = from.take(LINE).read_line(&mut line)?;
    line.truncate(line.trim_end().len());
    Ok((read > 0).then_some(line))
}

fn cut() -> io::Error {
    io::ErrorKind::UnexpectedEof.into()
}

impl Message {
    /// All but its body. `None` at the end of the connection.
    ///
    /// # Errors
    /// Those of the network.
    pub(super) fn head(from: &mut impl BufRead) -> io::Result<Option<Self>> {
        let Some(first) = line(from)? else { return Ok(None) };
        let mut message = Self { first, fields: Vec::new(), body: Vec::new() };
        loop {
            let line = line(from)?.ok_or_else(cut)?;
            let Some((name, value)) = line.split_once(':') else { break };
            message.fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        Ok(Some(message))
    }

    pub(super) fn field(&self, name: &str) -> &str {
        self.fields.iter().rfind(|(found, _)| found == name).map_or("", |(_, value)| value)
    }

    pub(super) fn status(&self) -> u16 {
        self.first.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0)
    }

    pub(super) fn is_hit(&self) -> bool {
        self.field("cache-status").contains("hit")
    }

    /// Whether its sender closes the connection after it.
    pub(super) fn is_last(&self) -> bool {
        self.field("connection").eq_ignore_ascii_case("close")
    }

    /// Bytes of its body, where it says so.
    pub(super) fn len(&self) -> Option<usize> {
        self.field("content-length").parse().ok()
    }

    /// Reads its body piece by piece, until there is no more or `piece` says that it is enough: then this is false.
    ///
    /// # Errors
    /// Those of the network, and a body that ends short.
    pub(super) fn pour(
        &self,
        from: &mut impl BufRead,
        mut piece: impl FnMut(&[u8]) -> io::Result<bool>,
    ) -> io::Result<bool> {
        if !self.field("transfer-encoding").eq_ignore_ascii_case("chunked") {
            return pieces(from, self.len().unwrap_or(0), &mut piece);
        }
        loop {
            let size = line(from)?.ok_or_else(cut)?;
            let size = usize::from_str_radix(&size, 16).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
            if size > 0 && !pieces(from, size, &mut piece)? {
                return Ok(false);
            }
            let mut end = line(from)?.ok_or_else(cut)?;
            while size == 0 && !end.is_empty() {
                end = line(from)?.ok_or_else(cut)?;
            }
            if size == 0 {
                return Ok(true);
            }
        }
    }
}

fn pieces(
    from: &mut impl BufRead,
    mut left: usize,
    piece: &mut impl FnMut(&[u8]) -> io::Result<bool>,
) -> io::Result<bool> {
    let mut buffer = [0; 16 << 10];
    while left > 0 {
        let room = left.min(buffer.len());
        let read = from.read(&mut buffer[..room])?;
        if read == 0 {
            return Err(cut());
        }
        left -= read;
        if !piece(&buffer[..read])? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The field of a browser that asks for a part of a page: ten numbers are one's.
pub(super) fn referer(key: u32) -> String {
    format!("referer: http://{HOST}/{}\r\n", key / 10 * 10)
}

/// One connection to the proxy.
pub(super) struct Client {
    pub(super) address: SocketAddr,
    pub(super) from: BufReader<TcpStream>,
    to: TcpStream,
}

impl Client {
    /// # Errors
    /// Those of the network.
    pub(super) fn new(address: SocketAddr) -> io::Result<Self> {
        let to = TcpStream::connect(address)?;
        to.set_read_timeout(Some(PATIENCE))?;
        to.set_nodelay(true)?;
        Ok(Self { address, from: BufReader::new(to.try_clone()?), to })
    }

    /// Asks, and waits for the head of the answer; `fields` are whole lines.
    ///
    /// # Errors
    /// Those of the network.
    pub(super) fn begin(&mut self, method: &str, target: &str, fields: &str) -> io::Result<Message> {
        let len = if method == "POST" { "content-length: 0\r\n" } else { "" };
        let request = format!("{method} {target} HTTP/1.1\r\nhost: {HOST}\r\n{fields}{len}\r\n");
        self.to.write_all(request.as_bytes())?;
        Message::head(&mut self.from)?.ok_or_else(cut)
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// Those of the network, and an answer that ends short.
    pub(super) fn ask(&mut self, method: &str, target: &str, fields: &str) -> io::Result<Message> {
        let mut answer = self.begin(method, target, fields)?;
        let mut body = Vec::with_capacity(answer.len().unwrap_or(0).min(8 << 20));
        answer.pour(&mut self.from, |piece| {
            body.extend_from_slice(piece);
            Ok(true)
        })?;
        answer.body = body;
        Ok(answer)
    }
}

/// One request on a connection of its own.
///
/// # Errors
/// As [`Client::ask`].
pub(super) fn ask_once(address: SocketAddr, method: &str, target: &str, fields: &str) -> io::Result<Message> {
    Client::new(address)?.ask(method, target, fields)
}
