//! Purges of every kind: exactly what they select goes, or is stale, and nothing else, also where they meet a fetch.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use crate::{
    kit::{Door, Message, Origin, Proxy, answer, eventually, ok},
    nginx::{Nginx, curl},
};

/// Of each path what it is tagged with; 200 by the number of the request, 304 to a cache that has it.
fn tagged() -> Origin {
    let asked = AtomicUsize::new(0);
    Origin::start(move |request, stream| {
        let tags = match request.path() {
            "/img/a.png" => "surrogate-key: images  a\n",
            "/img/b.png" => "surrogate-key: images\nsurrogate-key: b\n",
            "/page" => "cache-tag: pages,a\ncache-groups: \"front\", \"side bar\"\n",
            "/vary" => "vary: accept-language\ncache-tag: a\n",
            _ => "",
        };
        let method = request.method();
        if method == "POST" {
            return ok(stream, "cache-group-invalidation: \"side bar\"", b"");
        }
        if request.field("if-none-match") == "\"1\"" {
            return answer(stream, "304 Not Modified", &format!("{tags}etag: \"1\"\ncache-control: max-age=900"), b"");
        }
        let fields = format!("{tags}etag: \"1\"\ncache-control: max-age=900");
        ok(stream, &fields, format!("{} {}", asked.fetch_add(1, SeqCst), request.field("host")).as_bytes())
    })
}

const PATHS: [&str; 6] = ["/img/a.png", "/img/b.png", "/page", "/vary", "/large", "/page?q=1"];

fn hits(proxy: &Proxy) -> Vec<&'static str> {
    PATHS.into_iter().filter(|path| proxy.get(path).is_hit()).collect()
}

/// Which paths are gone after this.
fn gone_after(proxy: &Proxy, purge: &str) -> Vec<&'static str> {
    hits(proxy);
    assert_eq!(hits(proxy), PATHS, "before {purge}");
    let reply = proxy.admin("POST", &format!("/purge?{purge}"));
    assert_eq!(reply.status(), 200, "{purge}: {}", reply.text());
    let left = hits(proxy);
    PATHS.into_iter().filter(|path| !left.contains(path)).collect()
}

#[test]
fn a_purge_takes_what_it_selects_and_nothing_else() {
    let origin = tagged();
    let proxy = Proxy::before(&origin.url(), "");
    for (purge, gone) in [
        ("url=http://test.example/page", &["/page"][..]),
        ("url=http://test.example/vary", &["/vary"]),
        ("url=https://test.example/page?q=1", &["/page?q=1"]),
        ("prefix=http://test.example/img/", &["/img/a.png", "/img/b.png"]),
        ("prefix=http://test.example/page", &["/page", "/page?q=1"]),
        ("prefix=http://other.example/", &[]),
        ("pattern=*.example/*a.png", &["/img/a.png"]),
        ("pattern=test.example/*%3Fq=1", &["/page?q=1"]),
        ("pattern=test.example/page", &["/page"]),
        ("tag=images", &["/img/a.png", "/img/b.png"]),
        ("tag=a", &["/img/a.png", "/page", "/vary"]),
        ("tag=b,pages", &["/img/b.png", "/page"]),
        ("tag=A", &[]),
        ("group=front&host=test.example", &["/page"]),
        ("group=front&host=other.example", &[]),
        ("host=test.example", &PATHS),
        ("host=test.example:8080", &[]),
        ("all=1", &PATHS),
    ] {
        assert_eq!(gone_after(&proxy, purge), gone, "{purge}");
    }
    // The origin's own word, in the answer to an unsafe request (RFC 9875).
    hits(&proxy);
    assert_eq!(proxy.client().send("POST", "/elsewhere", &[], b"").status(), 200);
    assert!(!proxy.get("/page").is_hit() && proxy.get("/img/a.png").is_hit());
}

#[test]
fn a_soft_purge_is_ended_by_a_confirmation() {
    let origin = tagged();
    let proxy = Proxy::before(&origin.url(), "");
    hits(&proxy);
    for purge in ["soft=1&tag=images", "soft=1&url=http://test.example/img/a.png"] {
        let body = proxy.get("/img/a.png").text();
        assert_eq!(proxy.admin("POST", &format!("/purge?{purge}")).status(), 200);
        let confirmed = proxy.get("/img/a.png");
        assert!(confirmed.cache().contains("fwd=stale; fwd-status=304"), "{}", confirmed.cache());
        assert_eq!(confirmed.text(), body, "{purge}");
        assert!(proxy.get("/img/a.png").is_hit() && proxy.get("/page").is_hit());
    }
}

#[test]
fn what_is_soft_purged_is_served_stale_where_the_origin_allows_it() {
    let origin = Origin::start(|_, stream| ok(stream, "cache-control: max-age=900, stale-while-revalidate=600", b"x"));
    let proxy = Proxy::before(&origin.url(), "");
    proxy.get("/");
    assert_eq!(proxy.admin("POST", "/purge?soft=1&host=test.example").status(), 200);
    let stale = proxy.get("/");
    assert!(stale.cache().contains("detail=stale-while-revalidate"), "{}", stale.cache());
    assert!(proxy.get("/").cache().contains("ttl=8"), "fresh again");
    assert_eq!(origin.count(), 2);
}

/// An origin that answers when it is told to, and a purge in between.
fn purged_during_a_fetch(purge: &str) {
    let door = Arc::new(Door::default());
    let waits = door.clone();
    let origin = Origin::start(move |_, stream| {
        waits.pass();
        ok(stream, "cache-control: max-age=900\nsurrogate-key: t", b"x")
    });
    let proxy = Proxy::before(&origin.url(), "");
    let mut client = proxy.client();
    client.write("GET", "/", &[], b"");
    eventually("the origin is asked", || origin.count() == 1);
    assert_eq!(proxy.admin("POST", &format!("/purge?{purge}")).status(), 200);
    door.open();
    assert_eq!(client.read("GET").unwrap().status(), 200);
    proxy.settle();
    assert!(!proxy.get("/").is_hit(), "{purge}: what was purged must not come back");
    assert!(proxy.get("/").is_hit());
}

#[test]
fn a_purge_of_any_kind_wins_over_a_fetch_that_began_before() {
    for purge in [
        "url=http://test.example/",
        "tag=t",
        "host=test.example",
        "prefix=http://test.example/",
        "pattern=test.example/*",
        "all=1",
    ] {
        purged_during_a_fetch(purge);
    }
}

#[test]
fn what_is_no_purge_says_what_is_wrong() {
    let origin = tagged();
    let proxy = Proxy::before(&origin.url(), "");
    for (query, words) in [
        ("", "say which"),
        ("uri=http://a/", "uri is no parameter"),
        ("url=a", "should look like http://host/path"),
        ("prefix=http://a", "the first `/` of a path"),
        ("pattern=/x*", "without a scheme"),
        ("group=g", "goes with the host"),
        ("tag=a&url=http://a/", "one purge at a time"),
    ] {
        let reply = proxy.admin("POST", &format!("/purge?{query}"));
        assert!(reply.status() == 400 && reply.text().contains(words), "{query}: {}", reply.text());
    }
    let own = proxy.admin("POST", &format!("/purge?url=http://{}/page", proxy.admin));
    assert!(own.status() == 400 && own.text().contains("the admin listener's own"), "{}", own.text());
    let own = proxy.admin("POST", &format!("/purge?url=http://localhost:{}/page", proxy.admin.port()));
    assert_eq!(own.status(), 400);
}

#[test]
fn clients_of_the_allow_list_purge_with_curl_what_nginx_has_changed() {
    let nginx = Nginx::start("location / { add_header Cache-Control max-age=600; add_header Surrogate-Key all; }");
    let url = |proxy: &Proxy, path: &str| format!("http://{}{path}", proxy.address);
    for clients in ["[\"127.0.0.0/8\"]", "[\"192.0.2.0/24\"]", "[]"] {
        let may = clients.contains("127");
        let proxy = Proxy::before(&format!("http://{}", nginx.address), &format!("[purge]\nclients = {clients}\n"));
        let into = proxy.folder.path().join("body");
        let get = |path: &str| {
            let got = curl(&into, &[&url(&proxy, path)]);
            proxy.settle();
            String::from_utf8(got.1).unwrap()
        };
        nginx.file("a", b"old");
        nginx.file("b", b"old");
        assert_eq!((get("/a").as_str(), get("/b").as_str()), ("old", "old"));
        nginx.file("a", b"new");
        nginx.file("b", b"new");
        let (head, body) = curl(&into, &["-X", "PURGE", &url(&proxy, "/a")]);
        let expected = if may { ("200", "new") } else { ("405", "old") };
        assert!(head.contains(expected.0), "{clients}: {head}");
        assert_eq!(may, String::from_utf8_lossy(&body) == "purged 1\n", "{clients}");
        assert_eq!((get("/a").as_str(), get("/b").as_str()), (expected.1, "old"), "{clients}");
        let (head, _) = curl(&into, &["-X", "PURGE", "-H", "Surrogate-Key: all", &url(&proxy, "/")]);
        assert!(head.contains(expected.0), "{clients}: {head}");
        assert_eq!(get("/b"), expected.1, "{clients}");
    }
}

#[test]
fn a_response_with_more_tags_than_can_be_kept_is_not_stored() {
    let origin = Origin::start(|_, stream| {
        let tags: String = (0..1100).map(|n| format!("t{n} ")).collect();
        ok(stream, &format!("cache-control: max-age=900\nsurrogate-key: {tags}"), b"x")
    });
    let proxy = Proxy::before(&origin.url(), "");
    let first: Message = proxy.get("/");
    assert!(first.cache().contains("detail=too-many-tags"), "{}", first.cache());
    assert!(!proxy.get("/").is_hit());
}
