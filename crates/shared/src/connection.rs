//! A client's end of one connection.

use std::{
    io::{self, BufReader, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use crate::{
    error::{Error, Result},
    kind::Kind,
    wire::{self, DATA_MAX, Frame, HELLO, VERSION, welcome},
};

pub(crate) struct Connection {
    input: BufReader<UnixStream>,
    path: std::sync::Arc<Path>,
    out: Vec<u8>,
    frame: Vec<u8>,
}

impl Connection {
    /// Connects and says hello.
    pub(crate) fn open(path: &std::sync::Arc<Path>, patience: Duration) -> Result<Self> {
        let no_server = |source| Error::NoServer { path: path.to_path_buf(), source };
        let stream = UnixStream::connect(path).map_err(no_server)?;
        stream.set_read_timeout(Some(patience)).map_err(no_server)?;
        stream.set_write_timeout(Some(patience)).map_err(no_server)?;
        let input = BufReader::with_capacity(DATA_MAX, stream);
        let mut connection = Self { input, path: path.clone(), out: Vec::new(), frame: Vec::new() };
        let mut answer = [0; HELLO + 1];
        // A server that declines may have hung up before our hello; its answer is there all the same.
        let said = connection.input.get_mut().write_all(&wire::hello());
        connection.input.read_exact(&mut answer).or_else(|e| said.and(Err(e))).map_err(|e| connection.lost(e))?;
        let (hello, welcome) = answer.split_first_chunk().ok_or(Error::Version(0))?;
        let why = match (wire::version(hello), welcome.first()) {
            (None, _) => return Err(Error::Protocol("it does not say hello".into())),
            (Some(VERSION), Some(&welcome::IN)) => return Ok(connection),
            (Some(VERSION), Some(&welcome::TOO_MANY)) => "it has as many clients as it takes",
            (Some(VERSION), _) => "it serves another user",
            (Some(other), _) => return Err(Error::Version(other)),
        };
        Err(Error::Declined { path: path.to_path_buf(), why })
    }

    fn lost(&self, source: io::Error) -> Error {
        Error::Lost { path: self.path.to_path_buf(), source }
    }

    /// Adds a frame to what is sent next.
    pub(crate) fn add(&mut self, frame: &Frame<'_>) {
        frame.encode(&mut self.out);
    }

    /// Adds a part of a body, and sends whenever there is enough.
    pub(crate) fn add_body(&mut self, body: &[u8]) -> Result<()> {
        for data in body.chunks(DATA_MAX) {
            self.add(&Frame::Data(data));
            if self.out.len() >= DATA_MAX {
                self.send()?;
            }
        }
        Ok(())
    }

    pub(crate) fn send(&mut self) -> Result<()> {
        let sent = self.input.get_mut().write_all(&self.out);
        self.out.clear();
        sent.map_err(|error| match self.receive() {
            // Why the server hung up, if it said so.
            Err(said @ Error::Store { .. }) => said,
            _ => self.lost(error),
        })
    }

    /// The next frame; a failure that the server reports is an error here.
    pub(crate) fn receive(&mut self) -> Result<Frame<'_>> {
        if let Err(error) = wire::read(&mut self.input, &mut self.frame) {
            return Err(match error.kind() {
                io::ErrorKind::InvalidData => Error::Protocol(error.to_string()),
                io::ErrorKind::UnexpectedEof => {
                    self.lost(io::Error::new(error.kind(), "it closed the connection; it may be started again"))
                }
                io::ErrorKind::WouldBlock => self.lost(io::Error::new(io::ErrorKind::TimedOut, "it does not answer")),
                _ => self.lost(error),
            });
        }
        match Frame::decode(&self.frame) {
            Ok(Frame::Failed(kind, text)) => Err(Error::Store { kind, text: text.to_owned() }),
            Ok(frame) => Ok(frame),
            Err(bad) => Err(Error::Protocol(bad.to_string())),
        }
    }

    /// Whether the other end is gone.
    pub(crate) fn is_dead(error: &Error) -> bool {
        use io::ErrorKind::{TimedOut, WouldBlock};
        matches!(error, Error::Lost { source, .. } if !matches!(source.kind(), TimedOut | WouldBlock))
    }

    /// Whether another request may follow this error.
    pub(crate) fn survives(error: &Error) -> bool {
        matches!(error, Error::Store { kind, .. } if *kind != Kind::BadFrame)
    }
}

/// For an answer that has no place here.
pub(crate) fn unexpected(frame: &Frame<'_>) -> Error {
    let shown = format!("{frame:?}");
    Error::Protocol(format!("an answer that was not asked for: {}", shown.chars().take(40).collect::<String>()))
}
