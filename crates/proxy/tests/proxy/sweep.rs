//! The notes of purges go away by themselves, and with them what they select: never before it, and a soft one's never
//! at all.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use crate::{
    kit::{Client, Door, Origin, Proxy, answer, eventually, ok},
    nginx::{Nginx, curl},
};

/// Waits until no purge is noted or pinned any more.
fn swept(proxy: &Proxy) -> serde_json::Value {
    let mut stats = serde_json::Value::Null;
    eventually("the notes are gone", || {
        stats = proxy.stats()["purges"].clone();
        stats["noted"] == 0 && stats["pinned"] == 0
    });
    stats
}

fn purge(proxy: &Proxy, query: &str) {
    let reply = proxy.admin("POST", &format!("/purge?{query}"));
    assert_eq!(reply.status(), 200, "{query}: {}", reply.text());
}

/// Of `/N`: tags `N` and `all`, by the number of the request.
fn numbered() -> Origin {
    let asked = AtomicUsize::new(0);
    Origin::start(move |request, stream| {
        let n = request.path().trim_start_matches('/');
        let fields = format!("cache-control: max-age=9000\nsurrogate-key: t{n} all\n");
        ok(stream, &fields, asked.fetch_add(1, SeqCst).to_string().as_bytes())
    })
}

/// Has all tagged with `t`, and `/slow` not before the door opens.
fn slow() -> (Origin, Arc<Door>) {
    let door = Arc::new(Door::default());
    let waits = door.clone();
    let origin = Origin::start(move |request, stream| {
        if request.path() == "/slow" {
            waits.pass();
        }
        ok(stream, "cache-control: max-age=900\nsurrogate-key: t", b"x")
    });
    (origin, door)
}

#[test]
fn ten_thousand_purges_of_as_many_tags_find_room_and_go_away() {
    let origin = numbered();
    let proxy = Proxy::before(&origin.url(), "");
    let paths: Vec<String> = (0..40).map(|n| format!("/{}", n * 500)).collect();
    let first: Vec<String> = paths.iter().map(|path| proxy.get(path).text()).collect();
    let field = format!("authorization: Bearer {}", proxy.token);
    std::thread::scope(|scope| {
        for part in 0..8 {
            let (field, proxy) = (&field, &proxy);
            scope.spawn(move || {
                let mut client = Client::new(proxy.admin);
                for n in (part..10_000).step_by(8) {
                    let reply = client.send("POST", &format!("/purge?tag=t{n}"), &[field], b"");
                    assert_eq!(reply.status(), 200, "{n}: {}", reply.text());
                }
            });
        }
    });
    let stats = swept(&proxy);
    assert_eq!((&stats["by_kind"]["tag"], &stats["refused"]), (&10_000.into(), &0.into()));
    assert_eq!(stats["swept"], 20, "{stats}");
    for (path, first) in paths.iter().zip(&first) {
        let is_purged = path[1..].parse::<u32>().unwrap() < 10_000;
        let reply = proxy.get(path);
        assert_eq!((reply.is_hit(), &reply.text() == first), (!is_purged, !is_purged), "{path}");
    }
}

#[test]
fn every_kind_is_swept_and_what_is_not_selected_stays() {
    let origin = Origin::start(|request, stream| {
        let fields = match request.path() {
            "/vary" => "cache-control: max-age=900\nvary: accept-language\nsurrogate-key: t",
            "/large" => "cache-control: max-age=900\nsurrogate-key: t",
            _ => "cache-control: max-age=900\ncache-groups: \"g\"",
        };
        let len = if request.path() == "/large" { 3 << 20 } else { 10 };
        ok(stream, fields, &vec![b'x'; len])
    });
    let proxy = Proxy::before(&origin.url(), "");
    let paths = ["/vary", "/large", "/img/a", "/page"];
    let mut objects = 0;
    for (query, gone) in [
        ("tag=t", &["/vary", "/large"][..]),
        ("prefix=http://test.example/img/", &["/img/a"]),
        ("pattern=test.example/p*", &["/page"]),
        ("group=g&host=test.example", &["/img/a", "/page"]),
        ("soft=1&host=other.example", &[]),
        ("host=test.example", &paths),
        ("all=1", &paths),
    ] {
        paths.iter().for_each(|path| drop(proxy.get(path)));
        assert!(paths.iter().all(|path| proxy.get(path).is_hit()), "{query}");
        purge(&proxy, query);
        let stats = swept(&proxy);
        objects += gone.len() as u64;
        assert_eq!((&stats["swept"], &stats["made_stale"]), (&objects.into(), &0.into()), "{query}");
        for path in paths {
            assert_eq!(proxy.get(path).is_hit(), !gone.contains(&path), "{query}: {path}");
        }
    }
    let metrics = proxy.admin("GET", "/metrics").text();
    assert!(metrics.contains(&format!("picaflor_purges_swept_objects_total {objects}")));
}

#[test]
fn a_soft_purge_outlives_its_note_as_staleness() {
    let nginx = Nginx::start("location / { add_header Cache-Control max-age=600; add_header Surrogate-Key all; }");
    let proxy = Proxy::before(&format!("http://{}", nginx.address), "");
    let into = proxy.folder.path().join("body");
    let get = |path: &str| {
        let got = curl(&into, &[&format!("http://{}{path}", proxy.address)]);
        proxy.settle();
        (got.0, String::from_utf8(got.1).unwrap())
    };
    nginx.file("same", b"one");
    nginx.file("changed", b"one");
    for path in ["/same", "/changed"] {
        get(path);
        assert!(get(path).0.contains("picaflor; hit"));
    }
    nginx.file("changed", b"other");
    purge(&proxy, "soft=1&tag=all");
    let stats = swept(&proxy);
    assert_eq!((&stats["swept"], &stats["made_stale"]), (&0.into(), &2.into()), "{stats}");
    let (head, body) = get("/same");
    assert!(head.contains("fwd=stale; fwd-status=304") && body == "one", "{head}");
    let (head, body) = get("/changed");
    assert!(head.contains("fwd=stale; fwd-status=200") && body == "other", "{head}");
    assert!(get("/same").0.contains("picaflor; hit") && get("/changed").0.contains("picaflor; hit"));
}

#[test]
fn a_soft_purge_of_a_large_object_stays_noted_until_room_is_short() {
    let door = Arc::new(Door::default());
    let waits = door.clone();
    let origin = Origin::start(move |request, stream| {
        let fields = "cache-control: max-age=900\nsurrogate-key: t\netag: \"1\"";
        match request.path() {
            "/slow" => waits.pass(),
            _ if request.field("if-none-match") == "\"1\"" => return answer(stream, "304 Not Modified", fields, b""),
            _ => {}
        }
        ok(stream, fields, &vec![b'x'; 3 << 20])
    });
    let proxy = Proxy::before(&origin.url(), "");
    proxy.get("/");
    assert!(proxy.get("/").is_hit());
    purge(&proxy, "soft=1&tag=t");
    eventually("it was looked for", || proxy.stats()["purges"]["passes"] == 1);
    assert_eq!(proxy.stats()["purges"]["noted"], 1);
    assert!(proxy.get("/").cache().contains("fwd=stale; fwd-status=304"));
    assert!(proxy.get("/").is_hit());
    // A hundred more patterns, none of which goes before a fetch is over, are too many to wait for anything.
    let mut client = proxy.client();
    client.write("GET", "/slow", &[], b"");
    eventually("the origin is asked", || origin.count() == 3);
    (0..100).for_each(|n| purge(&proxy, &format!("pattern=other{n}.example/*")));
    eventually("the notes go", || proxy.stats()["purges"]["noted"].as_u64() < Some(60));
    door.open();
    assert_eq!(client.read("GET").unwrap().status(), 200);
    swept(&proxy);
    assert_eq!(origin.count(), 3);
    proxy.get("/");
    assert_eq!(origin.count(), 4, "what was stored is gone");
}

#[test]
fn a_note_waits_for_the_fetches_that_it_may_select() {
    let (origin, door) = slow();
    let proxy = Proxy::before(&origin.url(), "");
    proxy.get("/fast");
    let mut client = proxy.client();
    client.write("GET", "/slow", &[], b"");
    eventually("the origin is asked", || origin.count() == 2);
    purge(&proxy, "tag=t");
    let known = proxy.admin("GET", "/explain?url=http://test.example/fast").text();
    let known: serde_json::Value = serde_json::from_str(&known).unwrap();
    assert_eq!((&known["stored"][0]["state"], &known["stored"][0]["purge"]["text"]), (&"purged".into(), &"t".into()));
    proxy.client().get("/fast");
    // A fetch that began after it is no reason to wait, and the one before is.
    assert_eq!(proxy.stats()["purges"]["passes"], 0);
    door.open();
    assert_eq!(client.read("GET").unwrap().status(), 200);
    swept(&proxy);
    assert!(!proxy.get("/slow").is_hit() && proxy.get("/fast").is_hit());
}

#[test]
fn where_room_is_short_an_old_fetch_is_not_waited_for_and_not_stored() {
    let (origin, door) = slow();
    let proxy = Proxy::before(&origin.url(), "");
    let mut client = proxy.client();
    client.write("GET", "/slow", &[], b"");
    eventually("the origin is asked", || origin.count() == 1);
    purge(&proxy, "tag=t");
    (0..100).for_each(|n| purge(&proxy, &format!("pattern=other{n}.example/*")));
    eventually("the notes go", || proxy.stats()["purges"]["noted"].as_u64() < Some(60));
    door.open();
    let reply = client.read("GET").unwrap();
    assert_eq!((reply.status(), reply.text().as_str()), (200, "x"));
    swept(&proxy);
    assert!(!proxy.get("/slow").is_hit());
    assert!(proxy.get("/slow").is_hit());
}
