//! What an origin says ahead of its answer.

use std::io::Write;

use crate::kit::{Door, Origin, Proxy, ok};

#[test]
fn early_hints_reach_the_client_before_the_answer() {
    let door = Door::default();
    let closed = door.clone();
    let origin = Origin::start(move |request, stream| {
        let hints = "link: </style.css>; rel=preload; as=style\r\nconnection: x-hop\r\nx-hop: y\r\n";
        let early = format!("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n{hints}\r\n");
        stream.write_all(early.as_bytes()).unwrap();
        closed.pass();
        ok(stream, "cache-control: max-age=60", request.first.as_bytes())
    });
    let proxy = Proxy::before(&origin.url(), "");
    let mut client = proxy.client();
    let requests = [("GET", "/"), ("POST", "/post"), ("GET", "/again"), ("HEAD", "/head")];
    for (n, (method, path)) in requests.into_iter().enumerate() {
        client.write(method, path, &[], b"");
        let early = client.read_head().unwrap();
        assert_eq!((early.status(), early.field("link")), (103, "</style.css>; rel=preload; as=style"), "{early:?}");
        assert_eq!((early.field("connection"), early.field("x-hop")), ("", ""), "of the origin's connection");
        if n == 0 {
            door.open();
        }
        let reply = client.read(method).unwrap();
        assert_eq!(reply.status(), 200, "{reply:?}");
        assert!(method == "HEAD" || reply.text() == format!("{method} {path} HTTP/1.1"));
    }
    proxy.settle();
    assert!(client.get("/").is_hit(), "and nothing comes ahead of what is stored");
    let mut old = proxy.client();
    old.stream.write_all(b"GET /old HTTP/1.0\r\nHost: h\r\n\r\n").unwrap();
    assert_eq!(old.read("GET").unwrap().status(), 200, "HTTP/1.0 has no such thing");
}
