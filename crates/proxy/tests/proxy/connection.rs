//! One connection, many requests: what the fast path answers and what hyper answers must stay in order, byte by byte.

use std::{
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Instant,
};

use crate::kit::{Client, Door, Origin, Proxy, eventually, more_than_sockets_hold, ok, sleep};

fn echo() -> Origin {
    Origin::start(|request, stream| {
        let body = format!("{} {}", request.first, request.text());
        let fields =
            if request.path().starts_with("/stored") { "cache-control: max-age=60" } else { "cache-control: no-store" };
        ok(stream, fields, body.as_bytes())
    })
}

#[test]
fn pipelined_hits_misses_and_posts_come_in_order() {
    let origin = echo();
    let proxy = Proxy::before(&origin.url(), "");
    for path in ["/stored1", "/stored2"] {
        eventually("it is in memory", || {
            proxy.get(path);
            proxy.fast(path)
        });
    }
    let before = proxy.stats()["proxy"]["requests"]["hit-fast"].as_u64().unwrap();
    let mut client = proxy.client();
    let mut wanted = Vec::new();
    let mut text = String::new();
    for n in 0..200 {
        let path = ["/stored1", "/passed", "/stored2", "/post"][n % 4];
        if path == "/post" {
            text.push_str(&format!("POST /post HTTP/1.1\r\nHost: test.example\r\nContent-Length: 3\r\n\r\n{n:03}"));
            wanted.push(format!("POST /post HTTP/1.1 {n:03}"));
        } else {
            text.push_str(&format!("GET {path} HTTP/1.1\r\nHost: test.example\r\n\r\n"));
            wanted.push(format!("GET {path} HTTP/1.1 "));
        }
    }
    let mut writer = client.stream.try_clone().unwrap();
    let thread = std::thread::spawn(move || writer.write_all(text.as_bytes()));
    for expected in wanted {
        assert_eq!(client.read("GET").unwrap().text(), expected);
    }
    thread.join().unwrap().unwrap();
    assert_eq!(proxy.stats()["proxy"]["requests"]["hit-fast"], before + 100);
}

#[test]
fn a_client_that_reads_late_gets_every_answer_of_the_fast_path() {
    let origin = Origin::start(|_, stream| ok(stream, "cache-control: max-age=60", &[b'x'; 200_000]));
    let proxy = Proxy::before(&origin.url(), "");
    eventually("it is in memory", || proxy.fast("/"));
    // With one of these numbers the last answer finds the socket full, whatever the socket holds.
    for several in 1..=40 {
        let mut client = proxy.client();
        for _ in 0..several {
            client.write("GET", "/", &[], b"");
        }
        sleep(20);
        for n in 0..several {
            assert_eq!(client.read("GET").map(|reply| reply.body.len()), Some(200_000), "{n} of {several}");
        }
        client.write("GET", "/", &[], b"");
        let after = client.read("GET").map(|reply| reply.body.len());
        assert_eq!(after, Some(200_000), "the connection goes on after {several}");
    }
}

#[test]
fn a_client_that_reads_late_gets_every_answer_that_the_device_has() {
    let body = |path: &str| path.repeat(200_000 / path.len());
    let origin =
        Origin::start(move |request, stream| ok(stream, "cache-control: max-age=60", body(request.path()).as_bytes()));
    let proxy = Proxy::before(&origin.url(), "");
    let paths: Vec<_> = (0..more_than_sockets_hold() / 200_000).map(|n| format!("/{n:04}")).collect();
    for path in &paths {
        proxy.client().get(path);
    }
    proxy.settle();
    eventually("it is in memory", || proxy.fast("/in-memory"));
    // Some answer of the device fills the socket, and one that could go out at once waits behind it.
    let asked = || paths.iter().flat_map(|path| [path, "/in-memory"]);
    let mut client = proxy.client();
    for path in asked() {
        client.write("GET", path, &[], b"");
    }
    sleep(500);
    for path in asked() {
        assert!(client.read("GET").is_some_and(|reply| reply.text() == body(path)), "{path}");
    }
    let stats = proxy.stats();
    assert!(stats["proxy"]["requests"]["hit-device"].as_u64() > Some(paths.len() as u64 / 2), "{stats:#}");
}

#[test]
fn a_chunked_upload_is_the_last_of_its_connection() {
    let origin = Origin::start(|request, stream| ok(stream, "cache-control: max-age=60", request.first.as_bytes()));
    let proxy = Proxy::before(&origin.url(), "");
    let mut client = proxy.client();
    client.get("/a");
    // The raw origin does not read chunks, so an empty body it is.
    client
        .stream
        .write_all(b"PUT /b HTTP/1.1\r\nHost: test.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
        .unwrap();
    let reply = client.read("PUT").unwrap();
    assert_eq!((reply.status(), reply.field("connection")), (200, "close"));
    assert!(client.read_bytes(1).is_err());
}

#[test]
fn a_head_that_comes_byte_by_byte() {
    let origin = echo();
    let proxy = Proxy::before(&origin.url(), "");
    for path in ["/stored", "/stored", "/passed"] {
        let mut client = proxy.client();
        for byte in format!("GET {path} HTTP/1.1\r\nHost: test.example\r\n\r\n").bytes() {
            client.stream.write_all(&[byte]).unwrap();
            if byte == b' ' || byte == b'\n' {
                sleep(2);
            }
        }
        assert_eq!(client.read("GET").unwrap().text(), format!("GET {path} HTTP/1.1 "));
    }
}

#[test]
fn http_1_0_and_connection_close_end_the_connection() {
    let origin = echo();
    let proxy = Proxy::before(&origin.url(), "");
    proxy.get("/stored");
    for head in [
        "GET /stored HTTP/1.0\r\nHost: test.example\r\n\r\n",
        "GET /stored HTTP/1.1\r\nHost: test.example\r\nConnection: close\r\n\r\n",
    ] {
        let mut client = proxy.client();
        client.stream.write_all(head.as_bytes()).unwrap();
        let reply = client.read("GET").unwrap();
        assert!(reply.is_hit(), "{reply:?}");
        assert!(client.read_bytes(1).is_err(), "closed");
    }
}

#[test]
fn very_long_heads_get_an_answer() {
    let origin = echo();
    let proxy = Proxy::before(&origin.url(), "");
    let mut client = proxy.client();
    let long = format!("x: {}", "y".repeat(30_000));
    assert_eq!(client.send("GET", "/stored", &[&long], b"").status(), 200);
    proxy.settle();
    let fields: Vec<String> = (0..80).map(|n| format!("x-{n}: y")).collect();
    let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
    assert!(client.send("GET", "/stored", &fields, b"").is_hit(), "more fields than the fast path looks at");
    let mut client = proxy.client();
    client.write("GET", "/stored", &[&format!("x: {}", "y".repeat(200_000))], b"");
    assert_eq!(client.read("GET").unwrap_or_default().status(), 431);
}

#[test]
fn slow_heads_and_idle_connections_are_closed() {
    let origin = echo();
    let proxy = Proxy::before(&origin.url(), "[limits]\nheader_timeout = \"1s\"\nidle_timeout = \"4s\"\n");
    let mut idle = proxy.client();
    let mut slow = proxy.client();
    slow.stream.write_all(b"GET / HTTP/1.1\r\nx: ").unwrap();
    let begun = Instant::now();
    let mut dripping = slow.stream.try_clone().unwrap();
    let thread = std::thread::spawn(move || {
        while dripping.write_all(b"T").is_ok() {
            sleep(300);
        }
    });
    // What is not closed is waited for in vain, and that is another error.
    let closed = |client: &mut Client| client.read_bytes(1).unwrap_err().kind() != std::io::ErrorKind::WouldBlock;
    assert!(closed(&mut slow), "dripping bytes buy no time");
    assert!(closed(&mut idle));
    assert!(begun.elapsed().as_secs() >= 2, "an idle one has more time than a head: {:?}", begun.elapsed());
    thread.join().unwrap();
    assert!(proxy.stats()["proxy"]["connections_timed_out"].as_u64() >= Some(2));
}

#[test]
fn a_client_that_takes_nothing_is_let_go() {
    let len = more_than_sockets_hold();
    let origin = Origin::start(move |_, stream| ok(stream, "cache-control: max-age=60", &vec![0; len]));
    let proxy =
        Proxy::before(&origin.url(), "[limits]\nsend_timeout = \"1s\"\n[cache]\ncollapse_patience = \"100ms\"\n");
    let mut stuck = proxy.client();
    stuck.write("GET", "/", &[], b"");
    eventually("it is closed", || proxy.stats()["proxy"]["connections_timed_out"].as_u64() >= Some(1));
    assert_eq!(proxy.client().get("/").body.len(), len);
}

#[test]
fn an_older_version_needs_no_host_and_a_newer_one_is_1_1() {
    let origin = Origin::start(|request, stream| ok(stream, "", request.field("host").as_bytes()));
    let ask = |proxy: &Proxy, head: &str| {
        let mut client = proxy.client();
        client.stream.write_all(head.as_bytes()).unwrap();
        let reply = client.read("GET").unwrap();
        (reply.status(), reply.text())
    };
    let proxy = Proxy::before(&origin.url(), "");
    assert_eq!(ask(&proxy, "GET / HTTP/1.0\r\n\r\n"), (200, origin.address.to_string()));
    assert_eq!(ask(&proxy, "\r\nGET / HTTP/1.2\r\nHost: a\r\n\r\n"), (200, "a".into()));
    assert_eq!(ask(&proxy, "GET / HTTP/1.2\r\n\r\n").0, 400);
    let named = Proxy::start(&format!("[[origin]]\nhost = \"a\"\nurl = \"{}\"\n", origin.url()));
    assert_eq!(ask(&named, "GET / HTTP/1.0\r\n\r\n").0, 400);
}

#[test]
fn clients_that_say_nothing_keep_none_out() {
    let origin = echo();
    let limits = "workers = 1\n[limits]\nconnections = 3\nidle_timeout = \"10m\"\nheader_timeout = \"10m\"\n";
    let proxy = Proxy::before(&origin.url(), limits);
    let mut silent: Vec<_> = (0..6).map(|_| proxy.client()).collect();
    silent[3].stream.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    let mut client = proxy.client();
    assert_eq!(client.get("/stored").status(), 200);
    assert!(silent[0].read_bytes(1).is_err(), "it has waited longest");
    silent.extend((0..6).map(|_| proxy.client()));
    assert_eq!(proxy.client().get("/stored").status(), 200);
}

#[test]
fn the_limit_is_of_all_workers_together() {
    let origin = echo();
    let proxy = Proxy::before(&origin.url(), "workers = 4\n[limits]\nconnections = 8\nidle_timeout = \"10m\"\n");
    // The system gives them to workers by chance, seldom two to each.
    let mut clients: Vec<_> = (0..8).map(|_| proxy.client()).collect();
    for client in &mut clients {
        assert_eq!(client.get("/stored").status(), 200);
    }
    for client in &mut clients {
        client.write("GET", "/stored", &[], b"");
        assert_eq!(client.read("GET").map(|reply| reply.status()), Some(200), "it still is there");
    }
    assert_eq!(proxy.stats()["proxy"]["connections_timed_out"], 0);
}

#[test]
fn a_client_has_a_limit_of_its_own() {
    let origin = echo();
    let proxy = Proxy::before(&origin.url(), "[limits]\nconnections_per_client = 2\n");
    let mut clients = [proxy.client(), proxy.client()];
    for client in &mut clients {
        assert_eq!(client.get("/stored").status(), 200);
    }
    assert!(proxy.client().read_bytes(1).is_err(), "one too many");
    assert_eq!(proxy.stats()["proxy"]["denied"]["client-connections"], 1);
    drop(clients);
    eventually("there is room again", || {
        let mut client = proxy.client();
        client.write("GET", "/stored", &[], b"");
        client.read("GET").is_some_and(|reply| reply.status() == 200)
    });
}

#[test]
fn a_stop_lets_requests_finish_and_closes_what_is_idle() {
    let origin = Origin::start(|_, stream| {
        sleep(700);
        ok(stream, "cache-control: max-age=60", b"finished")
    });
    // An idle connection that the stop waited for would hold it up for all of this.
    let mut proxy = Proxy::before(&origin.url(), "[limits]\ndrain = \"5m\"\nidle_timeout = \"10m\"\n");
    let mut idle = proxy.client();
    let mut busy = proxy.client();
    busy.write("GET", "/", &[], b"");
    eventually("it is asked for", || origin.count() == 1);
    let reader = std::thread::spawn(move || busy.read("GET").map(|reply| reply.text()));
    proxy.stop().unwrap();
    assert_eq!(reader.join().unwrap().as_deref(), Some("finished"));
    assert!(idle.read_bytes(1).is_err());
    assert!(std::net::TcpStream::connect(proxy.address).is_err());
}

#[test]
fn a_stop_under_load_loses_no_request() {
    let origin = Origin::start(|request, stream| match request.path() {
        "/stored" => ok(stream, "cache-control: max-age=60", b"stored"),
        "/slow" => {
            // Its head has gone to the client, without a word of the stop, long before the end.
            let begun = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nsl").is_ok();
            sleep(400);
            begun && stream.write_all(b"ow").is_ok()
        }
        _ => ok(stream, "cache-control: no-store", b"passed"),
    });
    let mut proxy = Proxy::before(&origin.url(), "");
    proxy.get("/stored");
    let answered = Arc::<AtomicUsize>::default();
    let clients: Vec<_> = (0..64)
        .map(|n| {
            let (mut client, answered) = (proxy.client(), answered.clone());
            // Each goes on until it is told that it was the last; what it is not told, it asks in vain.
            std::thread::spawn(move || {
                for path in ["/stored", "/passed", "/stored", "/slow"].iter().cycle().skip(n) {
                    client.write("GET", path, &[], b"");
                    let Some(reply) = client.read("GET") else { return Err(*path) };
                    answered.fetch_add(1, SeqCst);
                    if reply.field("connection") == "close" {
                        return Ok(());
                    }
                }
                Ok(())
            })
        })
        .collect();
    eventually("all are busy", || answered.load(SeqCst) > 64 * 8);
    proxy.stop().unwrap();
    let lost: Vec<_> = clients.into_iter().filter_map(|client| client.join().unwrap().err()).collect();
    assert!(lost.is_empty(), "{} of 64: {lost:?}", lost.len());
}

#[test]
fn who_was_let_in_before_a_stop_is_answered() {
    let origin = echo();
    let mut proxy = Proxy::before(&origin.url(), "workers = 1\n[limits]\nconnections = 1\n");
    let mut first = proxy.client();
    first.get("/stored");
    // The system has let these in, the proxy has not: it has as many as it takes.
    let mut waiting: Vec<_> = (0..20).map(|_| proxy.client()).collect();
    for (n, client) in waiting.iter_mut().enumerate() {
        client.write("GET", ["/stored", "/passed"][n % 2], &[], b"");
    }
    sleep(100);
    proxy.stop().unwrap();
    for (n, mut client) in waiting.into_iter().enumerate() {
        assert_eq!(client.read("GET").expect("an answer").status(), 200, "{n}");
    }
}

#[test]
fn the_access_log_has_every_request() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let origin = echo();
    let mut proxy =
        Proxy::before(&origin.url(), &format!("workers = 1\n[log]\nto = \"{}\"\nformat = \"json\"\n", path.display()));
    proxy.get_with("/stored", &["user-agent: a\"b"]);
    eventually("it is stored", || proxy.stats()["proxy"]["stored"] == 1);
    proxy.get_with("/stored", &["referer: http://x/"]);
    proxy.get("/stored");
    proxy.client().send("TRACE", "/", &[], b"");
    proxy.stop().unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let column = |name: &str| lines.iter().map(|line| line[name].as_str().unwrap_or("").to_owned()).collect::<Vec<_>>();
    assert_eq!(column("outcome"), ["miss", "hit-device", "hit-fast", "denied"], "from its buffer, then from memory");
    assert_eq!(column("detail"), ["", "", "", "method-not-allowed"]);
    assert_eq!(column("agent")[0], "a\"b");
    assert_eq!(column("referer")[1], "http://x/");
    assert_eq!(column("url")[1], "http://test.example/stored");
    assert!(lines[0]["bytes"].as_u64() > Some(0) && lines[1]["bytes"] == lines[0]["bytes"]);
}

#[test]
fn requests_cut_anywhere_are_answered_alike() {
    let origin = echo();
    let proxy = Proxy::before(&origin.url(), "");
    let mut state = 88_172_645_463_325_252_u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    for _ in 0..30 {
        let mut text = Vec::new();
        let mut wanted = Vec::new();
        for n in 0..1 + random(12) {
            let body = "x".repeat(random(300));
            let extra =
                ["", "Range: bytes=0-2\r\n", "Cache-Control: max-age=60\r\n", "X-Long: yyyyyyyyyyyyy\r\n"][random(4)];
            let (method, path) = [("GET", "/stored"), ("GET", "/passed"), ("POST", "/p"), ("DELETE", "/d")][random(4)];
            let length = if method == "POST" { format!("Content-Length: {}\r\n", body.len()) } else { String::new() };
            let body = if method == "POST" { body } else { String::new() };
            text.extend(format!("{method} {path}{} HTTP/1.1\r\nHost: h\r\n{extra}{length}\r\n{body}", n % 3).bytes());
            let whole = format!("{method} {path}{} HTTP/1.1 {body}", n % 3);
            let part = extra.starts_with("Range") && method == "GET" && path == "/stored";
            wanted.push(if part { whole[..3].to_owned() } else { whole });
        }
        let mut client = proxy.client();
        let mut writer = client.stream.try_clone().unwrap();
        let mut cuts: Vec<usize> = (0..random(20)).map(|_| random(text.len())).chain([0, text.len()]).collect();
        cuts.sort_unstable();
        let thread = std::thread::spawn(move || {
            for cut in cuts.windows(2) {
                writer.write_all(&text[cut[0]..cut[1]]).unwrap();
                sleep(1);
            }
        });
        for expected in wanted {
            assert_eq!(client.read("GET").unwrap().text(), expected);
        }
        thread.join().unwrap();
    }
    assert!(proxy.stats()["proxy"]["requests"]["hit-fast"].as_u64() > Some(5));
}

#[test]
fn a_slow_upload_outlives_the_wait_for_an_answer() {
    let origin = echo();
    let proxy = Proxy::before(&origin.url(), "[limits]\nresponse_timeout = \"2s\"\n");
    let mut client = proxy.client();
    client.stream.write_all(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n").unwrap();
    for byte in b"helloagain" {
        sleep(300);
        client.stream.write_all(&[*byte]).unwrap();
    }
    assert_eq!(client.read("POST").unwrap().text(), "POST / HTTP/1.1 helloagain");
    let door = Door::default();
    let silent = Origin::start(move |_, _| {
        door.pass();
        false
    });
    let proxy = Proxy::before(&silent.url(), "[limits]\nresponse_timeout = \"300ms\"\n");
    let reply = proxy.get("/");
    assert_eq!((reply.status(), reply.cache()), (504, "picaflor; detail=response-timeout"));
}

#[test]
fn an_origin_that_does_not_answer_is_left_alone_for_a_while() {
    let door = Door::default();
    let closed = door.clone();
    let origin = Origin::start(move |_, _| {
        closed.pass();
        false
    });
    let proxy = Proxy::before(&origin.url(), "[limits]\nresponse_timeout = \"300ms\"\norigin_pause = \"1h\"\n");
    // An upload that stops is not the origin's silence.
    for _ in 0..2 {
        let mut stuck = proxy.client();
        stuck.stream.write_all(b"POST /up HTTP/1.1\r\nHost: test.example\r\nContent-Length: 9\r\n\r\n").unwrap();
        assert_eq!(stuck.read("POST").unwrap().cache(), "picaflor; detail=response-timeout");
    }
    for (n, reason) in ["response-timeout", "response-timeout", "paused", "paused"].iter().enumerate() {
        let reply = proxy.get(&format!("/{n}"));
        assert_eq!((reply.status(), reply.cache()), (504, format!("picaflor; detail={reason}").as_str()));
    }
    assert_eq!(origin.count(), 2);
    door.open();
}

#[test]
fn interim_answers_without_end_are_no_answer() {
    let is_over = Arc::<AtomicUsize>::default();
    let over = is_over.clone();
    let origin = Origin::start(move |_, stream| {
        while stream.write_all(&b"HTTP/1.1 100 Continue\r\n\r\n".repeat(100)).is_ok() {}
        over.store(1, SeqCst);
        false
    });
    let proxy = Proxy::before(&origin.url(), "workers = 1\n[limits]\nresponse_timeout = \"1s\"\n");
    let mut other = proxy.client();
    let mut client = proxy.client();
    client.write("GET", "/", &[], b"");
    eventually("it is asked for", || origin.count() == 1);
    assert_eq!(other.send("TRACE", "/", &[], b"").status(), 405, "others are served meanwhile");
    assert_eq!(client.read("GET").unwrap().cache(), "picaflor; detail=response-timeout");
    eventually("the origin is hung up on", || is_over.load(SeqCst) == 1);
}

#[test]
fn an_upload_has_its_limit() {
    let origin = Origin::start(|request, stream| {
        let is_chunked = !request.field("transfer-encoding").is_empty();
        // What is too long only in its chunks is found out while they come.
        is_chunked || ok(stream, "cache-control: no-store", &request.body)
    });
    let proxy = Proxy::before(&origin.url(), "[limits]\nupload_max = 10\n");
    assert_eq!(proxy.client().send("POST", "/", &[], b"0123456789").text(), "0123456789");
    for body in
        ["Content-Length: 11\r\n\r\n01234567890", "Transfer-Encoding: chunked\r\n\r\nb\r\n01234567890\r\n0\r\n\r\n"]
    {
        let mut client = proxy.client();
        client.stream.write_all(format!("POST / HTTP/1.1\r\nHost: test.example\r\n{body}").as_bytes()).unwrap();
        let reply = client.read("POST").unwrap();
        assert_eq!((reply.status(), reply.cache()), (413, "picaflor; detail=upload-too-long"), "{body}");
    }
    assert_eq!(proxy.stats()["proxy"]["denied"]["upload-too-long"], 2);
}

#[test]
fn a_slow_client_is_no_silent_origin() {
    let len = more_than_sockets_hold();
    let origin = Origin::start(move |_, stream| ok(stream, "cache-control: no-store", &vec![7; len]));
    let proxy = Proxy::before(&origin.url(), "[limits]\nbody_timeout = \"2s\"\n");
    let mut client = proxy.client();
    client.write("GET", "/", &[], b"");
    sleep(3000);
    assert_eq!(client.read("GET").unwrap().body.len(), len);
}

#[test]
fn a_url_has_its_limit() {
    let origin = echo();
    let proxy = Proxy::before(&origin.url(), "");
    let long = format!("/stored?{}", "q".repeat(7_900));
    assert!(!proxy.get(&long).is_hit() && proxy.get(&long).is_hit());
    assert_eq!(proxy.get(&format!("/{}", "q".repeat(9_000))).status(), 414);
}
