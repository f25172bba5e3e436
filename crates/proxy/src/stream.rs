//! A client's connection as the rest of the proxy has it: a socket, or TLS on one.

use std::{
    fs::File,
    io::{self, IoSlice},
    ops::Range,
    pin::Pin,
    task::{Context, Poll, Waker, ready},
};

use rustix::{
    fs::sendfile,
    net::{SendFlags, send},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::server::TlsStream;

/// The socket under TLS.
#[derive(Debug)]
pub(crate) struct Socket {
    tcp: TcpStream,
    /// Bytes that it has taken.
    taken: u64,
    /// For a write that is not waited for: it must not take the place of a task that waits for the socket.
    at_once: bool,
}

impl Socket {
    pub(crate) fn new(tcp: TcpStream) -> Self {
        Self { tcp, taken: 0, at_once: false }
    }

    /// Notes what was taken. Nothing taken at once is to be tried again.
    fn note(&mut self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &written {
            Poll::Ready(Ok(n)) => self.taken += *n as u64,
            Poll::Ready(Err(e)) if e.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
            _ => {}
        }
        written
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().tcp).poll_read(cx, room)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = match this.at_once {
            true => Poll::Ready(this.tcp.try_write(bytes)),
            false => Pin::new(&mut this.tcp).poll_write(cx, bytes),
        };
        this.note(written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = match this.at_once {
            true => Poll::Ready(this.tcp.try_write_vectored(slices)),
            false => Pin::new(&mut this.tcp).poll_write_vectored(cx, slices),
        };
        this.note(written)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().tcp).poll_shutdown(cx)
    }
}

/// See the head of this file.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<Socket>>),
}

impl Stream {
    /// Whether the client asked for HTTP/2.
    pub(crate) fn is_http2(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(tls) => tls.get_ref().1.alpn_protocol() == Some(b"h2"),
        }
    }

    /// The same as [`Stream::try_write_vectored`] of one slice.
    #[inline]
    pub(crate) fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.try_write(bytes),
            Self::Tls(_) => self.try_write_vectored(&[IoSlice::new(bytes)]),
        }
    }

    /// Writes what is taken at once. What TLS keeps of it is written with the next, or by a flush.
    #[inline]
    pub(crate) fn try_write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let tls = match self {
            Self::Plain(tcp) => return tcp.try_write_vectored(slices),
            Self::Tls(tls) => tls,
        };
        tls.get_mut().0.at_once = true;
        let written = Pin::new(&mut **tls).poll_write_vectored(&mut Context::from_waker(Waker::noop()), slices);
        tls.get_mut().0.at_once = false;
        match written {
            Poll::Ready(written) => written,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Whether it is the socket that writes what it is given: then that can be a file's.
    #[inline]
    pub(crate) fn takes_files(&self) -> bool {
        matches!(self, Self::Plain(_))
    }

    /// Writes what is taken at once of a head, and, if that is all of it, of what of a file belongs behind it.
    pub(crate) fn try_write_file(&mut self, head: &[u8], file: &File, part: Range<usize>) -> io::Result<usize> {
        let Self::Plain(tcp) = self else { return Err(io::ErrorKind::Unsupported.into()) };
        let more = SendFlags::MORE | SendFlags::NOSIGNAL;
        let sent = tcp.try_io(Interest::WRITABLE, || Ok(send(&*tcp, head, more)?))?;
        if sent < head.len() {
            return Ok(sent);
        }
        // What is wrong with the socket is seen when the rest is written.
        Ok(sent + tcp.try_io(Interest::WRITABLE, || send_file(tcp, file, part)).unwrap_or(0))
    }

    /// Writes from a file as much as is taken, when some is.
    pub(crate) fn poll_write_file(
        &mut self,
        cx: &mut Context<'_>,
        file: &File,
        part: Range<usize>,
    ) -> Poll<io::Result<usize>> {
        let Self::Plain(tcp) = self else { return Poll::Ready(Err(io::ErrorKind::Unsupported.into())) };
        loop {
            ready!(tcp.poll_write_ready(cx))?;
            match tcp.try_io(Interest::WRITABLE, || send_file(tcp, file, part.clone())) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                sent => return Poll::Ready(sent),
            }
        }
    }

    /// Whether the socket has all that was written.
    #[inline]
    pub(crate) fn is_flushed(&self) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::Tls(tls) => !tls.get_ref().1.wants_write(),
        }
    }

    /// How many bytes the socket under TLS has taken: what a flush that waits is seen to go on by.
    pub(crate) fn taken(&self) -> u64 {
        match self {
            Self::Plain(_) => 0,
            Self::Tls(tls) => tls.get_ref().0.taken,
        }
    }
}

fn send_file(tcp: &TcpStream, file: &File, part: Range<usize>) -> io::Result<usize> {
    Ok(sendfile(tcp, file, Some(&mut (part.start as u64)), part.len())?)
}

impl AsyncRead for Stream {
    #[inline]
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let tls = match self.get_mut() {
            Self::Plain(tcp) => return Pin::new(tcp).poll_read(cx, room),
            Self::Tls(tls) => tls,
        };
        match ready!(Pin::new(&mut **tls).poll_read(cx, room)) {
            // Many clients end without a word. Each request says itself where it ends, so nothing is taken for whole.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
            read => Poll::Ready(read),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_write(cx, bytes),
            Self::Tls(tls) => Pin::new(&mut **tls).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_write_vectored(cx, slices),
            Self::Tls(tls) => Pin::new(&mut **tls).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(_) => Poll::Ready(Ok(())),
            Self::Tls(tls) => Pin::new(&mut **tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Self::Tls(tls) => Pin::new(&mut **tls).poll_shutdown(cx),
        }
    }
}
