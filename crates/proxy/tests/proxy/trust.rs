//! One client's answers stay one client's: credentials, private fields, variants by what the proxy adds, and what only
//! clients on this machine may reach.

use std::{
    io::Write,
    net::{IpAddr, SocketAddr, UdpSocket},
};

use crate::kit::{Client, Door, Origin, Proxy, STALE, eventually, ok};

/// Stale at once; behind the door a 304 to every condition, with the fields that `confirm` makes of its cookie.
fn confirming(stored: &'static str, door: &Door, confirm: fn(&str) -> String) -> Origin {
    let door = door.clone();
    Origin::start(move |request, stream| {
        if request.field("if-none-match").is_empty() {
            return ok(stream, stored, b"body");
        }
        door.pass();
        let fields = confirm(request.field("cookie"));
        stream.write_all(format!("HTTP/1.1 304 Not Modified\r\netag: \"v\"\r\n{fields}\r\n\r\n").as_bytes()).is_ok()
    })
}

#[test]
fn a_304_for_one_client_is_for_no_other() {
    for confirm in [(|cookie: &str| format!("set-cookie: session={cookie}")) as fn(&str) -> String, |cookie| {
        format!("cache-control: private\r\nx-for: {cookie}")
    }] {
        let door = Door::default();
        let origin = confirming(STALE, &door, confirm);
        let proxy = Proxy::before(&origin.url(), "workers = 1\n");
        proxy.get("/");
        let users = ["ada", "bob", "eve"];
        let clients = proxy.held_at(&door, users.map(|user| format!("cookie: {user}")));
        for (mut client, user) in clients.into_iter().zip(users) {
            let reply = client.read("GET").unwrap();
            let mine = [reply.field("set-cookie"), reply.field("x-for")].concat();
            assert!(mine.is_empty() || mine.ends_with(user), "{user}: {reply:?}");
            assert_eq!(reply.text(), "body");
        }
        assert!(origin.count() > 1 + 3, "each asked for itself");
    }
}

#[test]
fn credentials_leave_what_everybody_gets_alone() {
    let fields = "cache-control: max-age=3600, stale-while-revalidate=3600\nage: 3601\netag: \"v\"";
    let door = Door::default();
    door.open();
    let origin = confirming(fields, &door, |_| "cache-control: max-age=3600, stale-while-revalidate=3600".into());
    let proxy = Proxy::before(&origin.url(), "");
    proxy.get("/");
    // Behind the stale answer it is confirmed, without credentials.
    assert!(proxy.get_with("/", &["authorization: Basic x"]).is_hit());
    assert!(proxy.get("/").cache().starts_with("picaflor; hit; ttl=3"), "it is fresh again");
    let own = proxy.get_with("/", &["authorization: Basic x", "cache-control: no-cache"]);
    assert!(own.cache().contains("fwd=request; fwd-status=304"), "{}", own.cache());
    assert!(proxy.get("/").is_hit(), "still there");
}

#[test]
fn ranges_and_conditions_reach_the_origin_where_nothing_is_shared() {
    let origin = Origin::start(|request, stream| {
        let body = format!("{}|{}", request.field("range"), request.field("if-none-match"));
        ok(
            stream,
            if request.path() == "/auth" { "cache-control: max-age=60" } else { "cache-control: private" },
            body.as_bytes(),
        )
    });
    let proxy = Proxy::before(&origin.url(), "");
    for (path, more) in [("/auth", "authorization: Basic x"), ("/private", "x-nothing: x")] {
        for _ in 0..2 {
            assert_eq!(proxy.get_with(path, &["range: bytes=1-2", more]).text(), "bytes=1-2|");
            assert_eq!(proxy.get_with(path, &["if-none-match: \"v\"", more]).text(), "|\"v\"");
        }
    }
}

#[test]
fn what_the_proxy_adds_does_not_tell_clients_apart() {
    let origin = Origin::start(|request, stream| {
        let by = request.path().trim_start_matches('/');
        ok(stream, &format!("cache-control: max-age=60\nvary: {by}"), request.field(by).as_bytes())
    });
    let proxy = Proxy::before(&origin.url(), "");
    for by in ["x-forwarded-proto", "x-forwarded-host", "host"] {
        let first = proxy.get(&format!("/{by}")).text();
        let again = proxy.get_with(&format!("/{by}"), &["x-forwarded-proto: gopher"]);
        assert!(again.is_hit() && again.text() == first, "{by}: {again:?}");
    }
    for _ in 0..2 {
        let reply = proxy.get_with("/x-forwarded-for", &["x-forwarded-for: 10.0.0.1"]);
        assert!(reply.cache().ends_with("detail=vary-star"), "an address chooses for one client: {reply:?}");
        assert_eq!(reply.text(), "127.0.0.1");
    }
    assert!(!proxy.get_with("/x-forwarded-for", &["x-forwarded-for: 10.0.0.1, 127.0.0.1"]).is_hit());
}

#[test]
fn what_a_client_keeps_from_the_origin_selects_nothing() {
    let origin = Origin::start(|request, stream| {
        let body = [request.field("origin"), request.field("x-kept")].concat();
        ok(stream, "cache-control: max-age=60\nvary: origin", body.as_bytes())
    });
    let proxy = Proxy::before(&origin.url(), "");
    let asked = "origin: https://a.example";
    assert_eq!(proxy.get_with("/", &["connection: origin", asked]).text(), "", "it is not passed on");
    assert_eq!(proxy.get_with("/", &[asked]).text(), "https://a.example");
    assert!(proxy.get("/").is_hit(), "what had no such field");
    for _ in 0..2 {
        let reply = proxy.get_with("/", &["connection: origin", asked]);
        assert!(reply.is_hit() && reply.text().is_empty(), "{reply:?}");
        assert!(proxy.get_with("/", &[asked]).is_hit());
    }
    let mut client = proxy.client();
    let head = b"GET /odd HTTP/1.1\r\nHost: a\r\nConnection: \xff, x-kept\r\nX-Kept: kept\r\n\r\n";
    client.stream.write_all(head).unwrap();
    assert_eq!(client.read("GET").unwrap().text(), "", "whatever stands beside its name");
}

/// An address of this machine other than loopback, if it has one; nothing is sent.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|ip| !ip.is_loopback())
}

#[test]
fn a_remote_client_does_not_read_what_only_a_local_one_may_fetch() {
    let Some(own) = own_address() else {
        return eprintln!("this machine has no address but loopback: only the keys were compared (target.rs)");
    };
    let origin = Origin::constant("cache-control: max-age=60", "of this machine");
    let proxy = Proxy::start_at("0.0.0.0:0", &format!("[forward]\nclients = [\"127.0.0.0/8\", \"{own}/32\"]\n"));
    let url = format!("{}/", origin.url());
    let ask = |ip: IpAddr| Client::new(SocketAddr::new(ip, proxy.address.port())).send("GET", &url, &[], b"");
    let loopback = IpAddr::from([127, 0, 0, 1]);
    assert_eq!(ask(loopback).status(), 200);
    eventually("it is a hit", || ask(loopback).is_hit());
    let remote = ask(own);
    assert_eq!((remote.status(), remote.cache()), (403, "picaflor; detail=local-destination"), "{remote:?}");
    let remote = Client::new(SocketAddr::new(own, proxy.address.port())).send(
        "GET",
        &format!("http://127.0.0.1:{}/stats", proxy.admin.port()),
        &[],
        b"",
    );
    assert_eq!(remote.cache(), "picaflor; detail=self-destination");
    assert_eq!(origin.count(), 1);
    let purged = proxy.purge(&url).text();
    assert!(purged.contains("\"purged\":1"), "{purged}");
}
