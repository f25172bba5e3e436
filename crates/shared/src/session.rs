//! One connection, from the hello to its end: a request, its answer, the next.
//!
//! The stream always has a time-out. Between requests that passes unnoticed; in the middle of one it ends the
//! connection, and what was being put was never there.

use std::{
    io::{self, BufRead, BufReader, ErrorKind, Read, Write},
    os::unix::net::UnixStream,
    sync::atomic::Ordering::Relaxed,
    time::Duration,
};

use bytes::Bytes;
use picaflor::{PutOptions, PutStream};

use crate::{
    kind::Kind,
    served::Served,
    wire::{self, DATA_MAX, FRAME_MAX, Frame, HELLO, Head, PutHead, VERSION, welcome},
};

/// Says hello and why not, and hangs up. Must not hold up the listener.
pub(crate) fn decline(stream: &UnixStream, why: u8) {
    let _ = stream.set_nonblocking(true);
    let mut out = stream;
    // An empty buffer takes a few bytes; a peer that has gone needs none.
    let _ = out.write_all(&answer(why));
}

fn answer(welcome: u8) -> [u8; HELLO + 1] {
    let mut bytes = [welcome; HELLO + 1];
    bytes[..HELLO].copy_from_slice(&wire::hello());
    bytes
}

/// Serves a connection until one side has enough.
pub(crate) fn run(served: &Served, stream: &UnixStream) {
    let patience = Some(served.limits.patience.max(Duration::from_millis(1)));
    if stream.set_read_timeout(patience).and(stream.set_write_timeout(patience)).is_err() {
        return;
    }
    let mut session = Session {
        served,
        input: BufReader::with_capacity(DATA_MAX, stream),
        stream,
        out: Vec::new(),
        frame: Vec::new(),
    };
    // How it ended is the peer's affair: it has been told, or has gone.
    let _ = session.serve();
}

struct Session<'a> {
    served: &'a Served,
    input: BufReader<&'a UnixStream>,
    stream: &'a UnixStream,
    /// What is to be written.
    out: Vec<u8>,
    /// The frame that was read last; used again for the next.
    frame: Vec<u8>,
}

impl Session<'_> {
    fn serve(&mut self) -> io::Result<()> {
        let mut hello = [0; HELLO];
        self.input.read_exact(&mut hello)?;
        self.out.extend_from_slice(&answer(welcome::IN));
        self.flush()?;
        // Another version has been told ours, and may come back with it.
        if wire::version(&hello) != Some(VERSION) {
            return Ok(());
        }
        while self.wait()? {
            let read = wire::read(&mut self.input, &mut self.frame);
            let served = read.and_then(|()| self.request());
            match served {
                Err(error) if error.kind() == ErrorKind::InvalidData => {
                    self.fail(Kind::BadFrame, &error.to_string());
                    return self.flush();
                }
                served => served?,
            }
            self.flush()?;
        }
        Ok(())
    }

    /// Waits for the next request; false at the end.
    fn wait(&mut self) -> io::Result<bool> {
        loop {
            match self.input.fill_buf() {
                Ok(bytes) => return Ok(!bytes.is_empty() && !self.served.stopping.load(Relaxed)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_timeout(&error) && !self.served.stopping.load(Relaxed) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn request(&mut self) -> io::Result<()> {
        let frame = std::mem::take(&mut self.frame);
        let served = match Frame::decode(&frame).map_err(bad)? {
            Frame::Get { key, from, to } => self.get(key, from, to),
            Frame::Put(head) => self.put(&head),
            Frame::Keys => self.keys(),
            other => {
                self.small(&other)?;
                Ok(())
            }
        };
        if self.frame.capacity() < frame.capacity() {
            self.frame = frame;
        }
        served
    }

    /// Requests of one frame with answers of one frame.
    fn small(&mut self, request: &Frame<'_>) -> io::Result<()> {
        let store = &self.served.store;
        let done = |()| Frame::Done;
        let answered = match *request {
            Frame::Delete(key) => store.delete(key).map(Frame::Answer),
            Frame::Contains(key) => store.contains(key).map(Frame::Answer),
            Frame::Invalidate(key) => store.invalidate(key).map(done),
            Frame::GroupOf(key) => store.group_of(key).map(|found| found.map_or(Frame::Answer(false), Frame::Group)),
            Frame::Page(group, bytes) if group != 0 => store.group(group).set_page(bytes).map(done),
            Frame::Flush => store.flush().map(done),
            Frame::Ping => Ok(Frame::Done),
            Frame::Collocate(a, b) => {
                store.collocate(a, b);
                Ok(Frame::Done)
            }
            Frame::Priority(group, priority) if group != 0 => {
                store.group(group).set(priority);
                Ok(Frame::Done)
            }
            Frame::Interval(group, millis) if group != 0 => {
                store.group(group).set_checkpoint_interval(millis.map(Duration::from_millis));
                Ok(Frame::Done)
            }
            Frame::Priority(..) | Frame::Interval(..) | Frame::Page(..) => return Err(bad("group 0 is no group")),
            _ => return Err(bad("a frame that is no request, or out of its order")),
        };
        match answered {
            Ok(answer) => answer.encode(&mut self.out),
            Err(error) => self.fail((&error).into(), &error.to_string()),
        }
        Ok(())
    }

    fn get(&mut self, key: &[u8], from: u64, to: u64) -> io::Result<()> {
        let object = match self.served.store.get(key) {
            Ok(Some(object)) => object,
            Ok(None) => {
                Frame::Answer(false).encode(&mut self.out);
                return Ok(());
            }
            Err(error) => {
                self.fail((&error).into(), &error.to_string());
                return Ok(());
            }
        };
        let head = Head {
            len: object.len(),
            generation: object.generation(),
            expires: object.expires().unwrap_or(0),
            group: object.group(),
            metadata: object.metadata().to_vec(),
        };
        Frame::Object(head).encode(&mut self.out);
        for piece in object.chunks(from..to.max(from)) {
            match piece {
                Ok(piece) => self.body(&piece)?,
                Err(error) => {
                    self.fail((&error).into(), &error.to_string());
                    return Ok(());
                }
            }
        }
        Frame::End.encode(&mut self.out);
        Ok(())
    }

    /// Frames a piece of a body; writes whenever there is enough for a write.
    fn body(&mut self, piece: &[u8]) -> io::Result<()> {
        for data in piece.chunks(DATA_MAX) {
            Frame::Data(data).encode(&mut self.out);
            if self.out.len() >= DATA_MAX {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn put(&mut self, head: &PutHead<'_>) -> io::Result<()> {
        let options = PutOptions::new()
            .metadata(Bytes::copy_from_slice(head.metadata))
            .expiry(head.expiry)
            .group(head.group)
            .server(head.server)
            .maybe_neighbour((!head.neighbour.is_empty()).then(|| Bytes::copy_from_slice(head.neighbour)))
            .bypass_memory(head.bypass_memory)
            .no_wait(head.no_wait);
        // After a failure the rest of the body is read and forgotten, and the failure is the answer at its end.
        let mut put = self.served.store.put_stream(head.key, head.len, options);
        loop {
            wire::read(&mut self.input, &mut self.frame)?;
            match Frame::decode(&self.frame).map_err(bad)? {
                Frame::Data(data) => put = put.and_then(|stream| write(stream, data)),
                Frame::End => break,
                Frame::Abandon => {
                    drop(put);
                    Frame::Done.encode(&mut self.out);
                    return Ok(());
                }
                _ => return Err(bad("a body is Data, then End or Abandon")),
            }
        }
        match put.and_then(PutStream::finish) {
            Ok(()) => Frame::Done.encode(&mut self.out),
            Err(error) => self.fail((&error).into(), &error.to_string()),
        }
        Ok(())
    }

    fn keys(&mut self) -> io::Result<()> {
        let mut keys = self.served.store.keys();
        for entry in keys.by_ref() {
            let entry = wire::Entry {
                key: entry.key.to_vec(),
                len: entry.len,
                metadata_len: entry.metadata_len,
                group: entry.group,
                expires: entry.expires,
                generation: entry.generation,
            };
            Frame::Entry(entry).encode(&mut self.out);
            if self.out.len() >= DATA_MAX {
                self.flush()?;
            }
        }
        match keys.unreadable() {
            0 => Frame::End.encode(&mut self.out),
            places => self.fail(Kind::Io, &unlisted(places)),
        }
        Ok(())
    }

    fn fail(&mut self, kind: Kind, text: &str) {
        // A key of 8 KiB may be quoted, and each of its bytes escaped.
        let mut end = text.len().min(FRAME_MAX / 2);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        Frame::Failed(kind, &text[..end]).encode(&mut self.out);
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut stream = self.stream;
        stream.write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }
}

fn write(mut stream: PutStream, data: &[u8]) -> picaflor::Result<PutStream> {
    stream.write(data)?;
    Ok(stream)
}

/// What a listing says that is not whole.
fn unlisted(places: u64) -> String {
    format!("of the listed store {places} places could not be read, and what lies there is not listed")
}

fn bad(why: impl ToString) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why.to_string())
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
