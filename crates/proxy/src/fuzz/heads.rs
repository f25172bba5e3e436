//! Heads of requests through the fast path and through hyper at once: both must see the same request, of the same
//! length, for the same key.

use std::{
    cell::RefCell,
    convert::Infallible,
    io,
    mem::MaybeUninit,
    net::IpAddr,
    pin::{Pin, pin},
    rc::Rc,
    sync::LazyLock,
    task::{Context, Poll, Waker},
};

use http::{HeaderValue, Method, Request, Response, header, request::Parts};
use http_body::Body as _;
use httparse::Header;
use hyper::{body::Incoming, rt::ReadBufCursor, server::conn::http1, service::service_fn};

use super::resolved;
use crate::{
    config::Config,
    conn::{Client, Conn},
    fast::{
        plain_key, request,
        seen::{Judged, LONGEST_HEAD, MOST_FIELDS, Plain, judge},
    },
    reason::Denied,
    rules::Asked,
    target::{self, Origins, Target},
};

/// A proxy as far as keys are concerned, and a client of it.
struct Side {
    config: Config,
    origins: Origins,
    conn: Conn,
}

static SIDES: LazyLock<Vec<Side>> = LazyLock::new(|| {
    const NAMED: &str = "[[origin]]\nhost = \"a\"\nurl = \"http://127.0.0.1:9\"\n";
    const EVERY: &str = "[[origin]]\nurl = \"http://127.0.0.1:9\"\n";
    const FORWARD: &str = "[forward]\nenabled = true\n";
    const FRONT: &str = "[front]\ntrusted = [\"192.0.2.0/24\"]\n";
    let side = |text: &str, client: IpAddr, may_forward| {
        let config = resolved(text).expect("a configuration");
        let client = Client { may_forward, ..Client::peer(client, &config) };
        Side { origins: Origins::new(&config.origin), config, conn: Conn::new(&client, 0) }
    };
    let (local, remote) = (IpAddr::from([127, 0, 0, 1]), IpAddr::from([192, 0, 2, 1]));
    vec![
        side(&format!("{NAMED}{FORWARD}"), local, true),
        side(&format!("{NAMED}{FORWARD}"), remote, true),
        side(EVERY, remote, false),
        side(EVERY, local, true),
        side(&format!("{EVERY}{FRONT}"), remote, false),
    ]
});

/// What hyper made of some bytes.
#[derive(Default)]
struct Made {
    parts: Option<Parts>,
    /// Bytes of the body, once all of it has come.
    body: Option<u64>,
    failed: bool,
}

/// Bytes that came; no more do, and the connection stays open.
struct Came {
    bytes: Vec<u8>,
    at: usize,
}

impl hyper::rt::Read for Came {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, mut to: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let n = (self.bytes.len() - self.at).min(to.remaining());
        if n == 0 {
            return Poll::Pending;
        }
        to.put_slice(&self.bytes[self.at..self.at + n]);
        self.at += n;
        Poll::Ready(Ok(()))
    }
}

impl hyper::rt::Write for Came {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// The first request in these bytes, as hyper sees it.
fn hypers(bytes: &[u8]) -> Made {
    let made = Rc::new(RefCell::new(Made::default()));
    let service = service_fn(|request: Request<Incoming>| {
        let (parts, mut body) = request.into_parts();
        let is_first = made.borrow().parts.is_none();
        if is_first {
            made.borrow_mut().parts = Some(parts);
        }
        let made = made.clone();
        async move {
            let mut len = 0;
            while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
                let Ok(frame) = frame else { return Ok::<_, Infallible>(Response::new(String::new())) };
                len += frame.data_ref().map_or(0, |data| data.len() as u64);
            }
            if is_first {
                made.borrow_mut().body = Some(len);
            }
            Ok(Response::new(String::new()))
        }
    });
    let io = Came { bytes: bytes.to_vec(), at: 0 };
    let mut builder = http1::Builder::new();
    builder.header_read_timeout(None).max_buf_size(LONGEST_HEAD).half_close(true);
    {
        let mut connection = pin!(builder.serve_connection(io, service));
        let mut cx = Context::from_waker(Waker::noop());
        // No task wakes another here; a few turns are enough for a body to go from one end of hyper to the other.
        for _ in 0..4 {
            if let Poll::Ready(ended) = connection.as_mut().poll(&mut cx) {
                made.borrow_mut().failed = ended.is_err();
                break;
            }
        }
    }
    made.take()
}

/// What the slow path says of a request before it looks for an answer.
fn slow(made: &Parts, side: &Side) -> Result<Option<Target>, Denied> {
    target::method(&made.method)?;
    if made.method == Method::CONNECT {
        return Ok(None);
    }
    let mut request = Request::new(());
    *request.method_mut() = made.method.clone();
    *request.uri_mut() = made.uri.clone();
    *request.version_mut() = made.version;
    *request.headers_mut() = made.headers.clone();
    Target::of(&request, &side.config, &side.origins, &side.conn).map(Some)
}

/// A request's head, and what comes behind it.
pub(super) fn head(bytes: &[u8]) {
    let mut fields = [const { MaybeUninit::<Header<'_>>::uninit() }; MOST_FIELDS];
    match judge(bytes, &mut fields) {
        Judged::Partial => {
            let made = hypers(bytes);
            assert!(made.parts.is_none() && !made.failed, "hyper does not wait for the rest of it");
        }
        Judged::Refused(why) => {
            // What hyper refuses without a word needs one; what the slow path refuses is refused alike. Of a length and
            // a coding hyper forgets the length, and of two equal lengths one, so the slow path cannot see what was
            // ambiguous.
            if let Some(parts) = hypers(bytes).parts {
                let lower = bytes.to_ascii_lowercase();
                let name = header::CONTENT_LENGTH.as_str().as_bytes();
                let is_repeated = lower.windows(name.len()).filter(|found| *found == name).count() > 1;
                let is_coded = parts.headers.contains_key(header::TRANSFER_ENCODING);
                let forgot = why == Denied::AmbiguousLength && (is_coded || is_repeated);
                let refused = forgot || parts.method == Method::CONNECT || slow(&parts, &SIDES[2]).is_err();
                assert!(refused, "{why}, but not by the slow path: {parts:?}");
            }
        }
        Judged::ForGood => {
            let made = hypers(bytes);
            assert!(made.parts.is_some(), "refused without a word");
        }
        Judged::One { len, body } => {
            let all = len as u64 + body;
            let is_whole = bytes.len() as u64 >= all;
            let made = hypers(&bytes[..usize::try_from(all).map_or(bytes.len(), |all| all.min(bytes.len()))]);
            let parts = made.parts.expect("refused without a word");
            assert!(
                !is_whole || made.body == Some(body),
                "hyper has a body of {:?}, not of {body}: {parts:?}",
                made.body
            );
            assert!(is_whole || made.body.is_none(), "hyper has all of it already: {parts:?}");
        }
        Judged::Plain(plain) => {
            let made = hypers(&bytes[..plain.len]);
            let ours = request::of(&plain, bytes);
            assert_eq!(made.parts.is_some(), ours.is_some(), "{}", plain.target);
            if let (Some(parts), Some(ours)) = (made.parts, ours) {
                let (ours, _) = ours.into_parts();
                assert_eq!(made.body, Some(0), "{parts:?}");
                assert_eq!((&parts.method, &parts.uri, parts.version), (&ours.method, &ours.uri, ours.version));
                assert_eq!(parts.headers, ours.headers);
                assert_eq!(plain.head_only, ours.method == Method::HEAD);
                same(&parts, &plain);
            }
        }
    }
}

/// The fast path may answer this: the slow path must mean the same object, and have no reason to answer otherwise.
fn same(parts: &Parts, plain: &Plain<'_, '_>) {
    let target = plain.target;
    let mut key = Vec::new();
    for side in SIDES.iter() {
        let forward = side.config.forward.enabled;
        if plain_key(&mut key, plain, (&side.conn, &side.origins, forward)).is_none() {
            continue;
        }
        match slow(parts, side) {
            Ok(Some(found)) => {
                assert_eq!(found.key, key, "{target}");
                assert!(!found.is_disputed, "{parts:?}");
            }
            other => {
                panic!("{target} is {} to the fast path, {other:?} to the slow one", String::from_utf8_lossy(&key))
            }
        }
    }
    let wishes = plain.wishes.unwrap_or_default();
    let asked = Asked::of_lines(wishes.cache_control.into_iter(), wishes.pragma.into_iter());
    assert_eq!(Asked::of(&parts.headers).directives, asked.directives);
    let wished = [
        (header::RANGE, wishes.range),
        (header::IF_RANGE, wishes.if_range),
        (header::IF_NONE_MATCH, wishes.none_match),
        (header::IF_MODIFIED_SINCE, wishes.modified_since),
    ];
    for (name, value) in wished {
        let lines: Vec<_> = parts.headers.get_all(&name).iter().map(HeaderValue::as_bytes).collect();
        assert_eq!(lines, value.into_iter().collect::<Vec<_>>(), "{name}");
    }
    let judged = [
        header::IF_MATCH,
        header::IF_UNMODIFIED_SINCE,
        header::UPGRADE,
        header::EXPECT,
        header::TRANSFER_ENCODING,
        header::CONTENT_LENGTH,
    ];
    assert!(judged.iter().all(|name| !parts.headers.contains_key(name)), "{parts:?}");
}
