//! The layer around services that count, and the README's server as a process of its own.
#![allow(clippy::unwrap_used)] // a test that cannot go on fails

use std::{
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use axum::{Router, body::Body, extract::Request, response::Response};
use doors_kit::{Program, noise};
use picaflor_tower::{
    CacheLayer,
    picaflor::{Error, Options, device::MemoryDevice},
};
use tower::ServiceExt;

#[test]
fn the_readme_shows_the_example() {
    let (readme, example) = (include_str!("../README.md"), include_str!("../examples/resizer.rs"));
    assert!(readme.contains(example), "the README has another text than examples/resizer.rs");
}

struct Server {
    _program: Program,
    address: String,
}

impl Server {
    fn start(store: &Path) -> Self {
        let mut program = Program::start("resizer", [Path::new("127.0.0.1:0"), store]);
        let address = program.line();
        Self { _program: program, address }
    }

    fn get(&self, path: &str) -> (String, Vec<u8>) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        let end = all.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
        (String::from_utf8_lossy(&all[..end]).to_lowercase(), all[end + 4..].to_vec())
    }
}

#[test]
fn after_kill_9_what_was_made_is_not_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("cache.store");
    let sides = [1, 64, 500, 1500];
    let first = Server::start(&store);
    let made: Vec<_> = sides.iter().map(|side| first.get(&format!("/tile/{side}"))).collect();
    assert!(made.iter().all(|(head, _)| head.starts_with("http/1.1 200") && head.contains("fwd=miss; stored")));
    assert_eq!(first.get("/made").1, b"4");
    drop(first);
    let second = Server::start(&store);
    for (side, (_, body)) in sides.iter().zip(&made) {
        let (head, again) = second.get(&format!("/tile/{side}"));
        assert!(head.contains("cache-status: picaflor; hit") && head.contains("age: "), "{head}");
        assert!(head.contains(&format!("content-length: {}", body.len())), "{head}");
        assert!(again == *body, "{side}");
    }
    assert_eq!(second.get("/made").1, b"0");
}

/// What was asked of the service within, and how often.
#[derive(Clone, Default)]
struct Asked(Arc<AtomicUsize>);

impl Asked {
    fn times(&self) -> usize {
        self.0.load(SeqCst)
    }
}

fn memory() -> Options {
    Options::on(Arc::new(MemoryDevice::new(64 << 20))).memory(16 << 20)
}

async fn around<F>(answer: F) -> (Router, Asked, CacheLayer)
where
    F: Fn(&Request) -> Response + Clone + Send + Sync + 'static,
{
    let (asked, cache) = (Asked::default(), CacheLayer::open(memory()).await.unwrap().body_max(4 << 20));
    let count = asked.clone();
    let service = move |request: Request| {
        count.0.fetch_add(1, SeqCst);
        let response = answer(&request);
        async move {
            // Others come meanwhile.
            tokio::task::yield_now().await;
            response
        }
    };
    (Router::new().fallback(service).layer(cache.clone()), asked, cache)
}

async fn ask(app: &Router, method: &str, path: &str, headers: &[(&str, &str)]) -> (Response, Vec<u8>) {
    let mut request = Request::builder().method(method).uri(path).header("host", "example.org");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = app.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.map(Vec::from).unwrap_or_default();
    (Response::from_parts(parts, Body::empty()), body)
}

fn fresh(body: Vec<u8>) -> Response {
    Response::builder().header("cache-control", "max-age=600").body(body.into()).unwrap()
}

#[tokio::test]
async fn of_a_hundred_who_miss_at_once_one_asks() {
    let (app, asked, _) = around(|_| fresh(noise(300_000, 1))).await;
    let all: Vec<_> = (0..100)
        .map(|_| {
            let app = app.clone();
            tokio::spawn(async move { ask(&app, "GET", "/popular", &[]).await.1 })
        })
        .collect();
    for body in all {
        assert!(body.await.unwrap() == noise(300_000, 1));
    }
    assert_eq!(asked.times(), 1);
}

#[tokio::test]
async fn bodies_of_every_size_and_those_that_are_too_long() {
    let len = |request: &Request| request.uri().path()[1..].parse::<usize>().unwrap();
    let (app, asked, _) = around(move |request| fresh(noise(len(request), 5))).await;
    for (number, (len, is_kept)) in
        [(0, true), (1, true), (300_000, true), (3_000_000, true), (5_000_000, false)].into_iter().enumerate()
    {
        for _ in 0..2 {
            let (_, body) = ask(&app, "GET", &format!("/{len}"), &[]).await;
            assert!(body == noise(len, 5), "{len}");
        }
        assert_eq!(asked.times(), if is_kept { number + 1 } else { number + 2 }, "{len}");
    }
}

#[tokio::test]
async fn what_may_not_be_kept_is_not() {
    for (name, value) in [("cache-control", "no-store"), ("cache-control", "private, max-age=9"), ("x-none", "1")] {
        let (app, asked, _) =
            around(move |_| Response::builder().header(name, value).body("secret".into()).unwrap()).await;
        for times in 1..3 {
            assert_eq!(ask(&app, "GET", "/", &[]).await.1, b"secret");
            assert_eq!(asked.times(), times, "{name}: {value}");
        }
    }
    // What is for one known client is for no other; a part is not the whole; HEAD and POST pass.
    let (app, asked, _) = around(|_| fresh(b"answer".into())).await;
    for headers in [&[("authorization", "Basic eDp5")][..], &[("range", "bytes=0-1")]] {
        ask(&app, "GET", "/", headers).await;
    }
    ask(&app, "HEAD", "/", &[]).await;
    ask(&app, "POST", "/", &[]).await;
    ask(&app, "GET", "/", &[]).await;
    assert_eq!(asked.times(), 5);
    ask(&app, "GET", "/", &[]).await;
    assert_eq!(asked.times(), 5);
}

#[tokio::test]
async fn a_change_a_reload_and_another_variant_ask_anew() {
    let vary = |request: &Request| {
        let language = request.headers().get("accept-language").map_or("", |it| it.to_str().unwrap()).to_owned();
        let mut response = fresh(language.into_bytes());
        response.headers_mut().insert("vary", "accept-language".parse().unwrap());
        response
    };
    let (app, asked, cache) = around(vary).await;
    let english = [("accept-language", "en")];
    for _ in 0..2 {
        assert_eq!(ask(&app, "GET", "/page", &english).await.1, b"en");
    }
    assert_eq!(asked.times(), 1);
    assert_eq!(ask(&app, "GET", "/page", &[("accept-language", "es")]).await.1, b"es");
    assert_eq!(ask(&app, "GET", "/page", &english).await.1, b"en");
    assert_eq!(asked.times(), 3);
    ask(&app, "GET", "/page", &[english[0], ("cache-control", "no-cache")]).await;
    assert_eq!(asked.times(), 4);
    ask(&app, "GET", "/page", &english).await;
    assert_eq!(asked.times(), 4);
    // The host is a part of the key.
    assert!(cache.store().contains(b"example.org/page").unwrap());
    ask(&app, "DELETE", "/page", &[]).await;
    assert!(!cache.store().contains(b"example.org/page").unwrap());
}

#[tokio::test]
async fn a_body_that_fails_reaches_the_client_as_failed_and_is_not_kept() {
    let pieces = || {
        let pieces = [Ok("begin"), Err(std::io::Error::other("the disk is gone"))];
        Body::new(http_body_util::StreamBody::new(futures_util::stream::iter(
            pieces.map(|piece| piece.map(|text| http_body::Frame::data(text.into()))),
        )))
    };
    let answer =
        move |_: &Request| Response::builder().header("cache-control", "max-age=600").body::<Body>(pieces()).unwrap();
    let (app, asked, cache) = around(answer).await;
    for times in 1..3 {
        let request = Request::builder().uri("/broken").header("host", "x").body(Body::empty()).unwrap();
        let response = app.clone().oneshot(request).await.unwrap();
        assert!(axum::body::to_bytes(response.into_body(), usize::MAX).await.is_err());
        assert_eq!(asked.times(), times);
    }
    assert_eq!(cache.store().stats().objects, 0);
}

#[tokio::test]
async fn what_the_store_refuses_is_answered() {
    let cache = CacheLayer::open(memory().admission(|_, _| false)).await.unwrap();
    let app = Router::new().fallback(|| async { fresh(noise(1000, 1)) }).layer(cache);
    assert!(ask(&app, "GET", "/", &[]).await.1 == noise(1000, 1));
}

#[tokio::test]
async fn a_foreign_file_and_a_missing_folder_have_our_words() {
    let folder = tempfile::tempdir().unwrap();
    let foreign = folder.path().join("foreign");
    std::fs::write(&foreign, vec![b'x'; 8 << 20]).unwrap();
    let error = CacheLayer::open(Options::new(&foreign)).await.err().unwrap();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
    let error = CacheLayer::open(Options::new(folder.path().join("none/store"))).await.err().unwrap();
    assert!(error.to_string().contains("none/store"), "{error}");
}
