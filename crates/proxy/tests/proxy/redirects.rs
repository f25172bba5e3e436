//! Redirects that are followed for the client, and texts that are replaced: nginx as origins, curl where its view
//! counts.

use crate::{
    certs::Ca,
    kit::{Message, Origin, Proxy, answer, ok},
    nginx::{Nginx, curl, noise},
};

/// Says which credentials and which host it was asked with.
const TELLS: &str = "add_header X-Told \"$http_authorization|$http_cookie|$http_x_key|$http_host|$http_user_agent\";";

fn rule(more: &str) -> String {
    format!("[[rule]]\nfollow_redirects = 3\n{more}")
}

fn seen(reply: &Message) -> (u16, &str) {
    (reply.status(), reply.cache())
}

#[test]
fn what_a_redirect_leads_to_is_stored_under_the_url_that_was_asked_for() {
    let nginx = Nginx::start(
        "location /old/ { rewrite ^/old/(.*)$ /new/$1 redirect; }
         location = /twice { return 307 /old/f; }
         location = /303 { return 303 new/f; }
         location /new/ { add_header Cache-Control max-age=600; }",
    );
    let body = noise(300_000, 5);
    nginx.file("new/f", &body);
    let url = format!("http://{}", nginx.address);
    let proxy = Proxy::before(&url, &rule("path = \"/*\"\n"));
    let out = proxy.folder.path().join("out");
    for path in ["/old/f", "/twice", "/303"] {
        let (head, got) = curl(&out, &[&format!("http://{}{path}", proxy.address)]);
        assert!(got == body && head.starts_with("http/1.1 200"), "{path}: {head}");
        proxy.settle();
        let (head, got) = curl(&out, &["-r", "5-9", &format!("http://{}{path}", proxy.address)]);
        assert!(got == body[5..10] && head.contains("picaflor; hit"), "{path}: {head}");
    }
    for (path, times) in [("/new/f", 3), ("/old/f", 2), ("/twice", 1), ("/303", 1)] {
        nginx.was_asked(path, times);
    }
    assert!(!proxy.get("/new/f").is_hit(), "it is asked for under its own URL for the first time");
    let head = proxy.client().send("HEAD", "/old/g?", &[], b"");
    assert_eq!(head.status(), 404, "HEAD is followed, too");
    let posted = proxy.client().send("POST", "/old/f", &[], b"x");
    assert_eq!((posted.status(), posted.field("location").ends_with("/new/f")), (302, true), "POST is the client's");
    let plain = Proxy::before(&url, "");
    assert_eq!(plain.get("/old/f").status(), 302, "no rule says so");
}

#[test]
fn another_server_gets_no_credentials_and_the_same_one_keeps_them() {
    let ca = Ca::new();
    let issued = ca.issue(&["127.0.0.1"]);
    let (file, key) = (issued.file.display(), issued.key.display());
    let cdn = Nginx::start_by(
        "reuseport ssl",
        &format!(
            "ssl_certificate {file}; ssl_certificate_key {key};
             location / {{ add_header Cache-Control 'public, max-age=60'; {TELLS} }}
             location = /back {{ return 302 http://one.example/f; }}"
        ),
    );
    cdn.file("f", b"of the other server");
    let nginx = Nginx::start(&format!(
        "location / {{ add_header Cache-Control 'public, max-age=60'; {TELLS} }}
         location = /away {{ return 302 https://{0}/f; }}
         location = /round {{ return 302 https://{0}/back; }}
         location = /near {{ return 302 http://one.example/f; }}",
        cdn.address
    ));
    nginx.file("f", b"of the first");
    let proxy = Proxy::start(&format!(
        "[[origin]]\nhost = \"one.example\"\nurl = \"http://{}\"\n\
         [[origin]]\nhost = \"two.example\"\nurl = \"https://{}\"\nca = {:?}\n{}",
        nginx.address,
        cdn.address,
        ca.file(),
        rule("request_set = { X-Key = \"operators\" }\n"),
    ));
    let get = |path: &str| {
        let mut stream = std::net::TcpStream::connect(proxy.address).unwrap();
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: one.example\r\nAuthorization: Basic c2VjcmV0\r\nCookie: a=b\r\n\
             User-Agent: apt\r\nConnection: close\r\n\r\n"
        );
        std::io::Write::write_all(&mut stream, head.as_bytes()).unwrap();
        let mut reader = std::io::BufReader::new(stream);
        let mut reply = Message::read_head(&mut reader).unwrap();
        std::io::Read::read_to_end(&mut reader, &mut reply.body).unwrap();
        reply
    };
    let own = "Basic c2VjcmV0|a=b|operators|one.example|apt";
    let (away, near, round) = (get("/away"), get("/near"), get("/round"));
    assert_eq!(
        (away.text().as_str(), away.field("x-told")),
        ("of the other server", &*format!("|||{}|apt", cdn.address))
    );
    assert_eq!((near.text().as_str(), near.field("x-told")), ("of the first", own));
    assert_eq!(
        (round.text().as_str(), round.field("x-told")),
        ("of the first", "|||one.example|apt"),
        "nothing comes back"
    );
}

#[test]
fn a_chain_that_does_not_end_is_an_origin_that_fails() {
    let nginx = Nginx::start(
        "location /1 { return 302 /2; } location /2 { return 302 /3; } location /3 { return 302 /4; }
         location /4 { return 302 /5; } location /5 { add_header Cache-Control max-age=60; return 200 five; }
         location = /self { return 301 /self; } location = /a { return 302 /b; } location = /b { return 302 /a; }",
    );
    let proxy = Proxy::before(&format!("http://{}", nginx.address), &rule(""));
    for path in ["/1", "/self", "/a"] {
        assert_eq!(seen(&proxy.get(path)), (502, "picaflor; detail=redirect-loop"), "{path}");
    }
    assert_eq!(proxy.get("/2").text(), "five", "three of them");
    nginx.was_asked("/self", 1);
    nginx.was_asked("/4", 2);
    assert_eq!(proxy.stats()["proxy"]["origin_failures"]["redirect-loop"], 3);
}

#[test]
fn a_loop_is_bridged_by_what_is_stale() {
    let origin = Origin::start(|request, stream| match request.field("if-none-match") {
        "" => ok(stream, crate::kit::STALE, b"old"),
        _ => answer(stream, "302 Found", "location: /", b""),
    });
    let proxy = Proxy::before(&origin.url(), &rule(""));
    assert_eq!(proxy.get("/").text(), "old");
    let again = proxy.get("/");
    assert!(again.text() == "old" && again.cache().contains("detail=redirect-loop"), "{}", again.cache());
}

#[test]
fn only_hosts_that_are_listed_are_asked_and_none_of_this_machine_or_a_private_network() {
    let near = Origin::constant("cache-control: max-age=60", "near");
    let port = near.address.port();
    let places = [
        format!("http://127.0.0.1:{port}/"),
        format!("http://localhost:{port}/"),
        format!("http://[::1]:{port}/"),
        format!("http://[::ffff:127.0.0.1]:{port}/"),
        format!("http://0.0.0.0:{port}/"),
        "http://10.0.0.1/".into(),
        "http://172.31.255.1/".into(),
        "http://192.168.1.1/".into(),
        "http://169.254.169.254/latest/meta-data/".into(),
        "http://100.64.0.1/".into(),
        "http://[fd00::1]/".into(),
        "http://[fe80::1]/".into(),
    ];
    let to = places.clone();
    let origin = Origin::start(move |request, stream| {
        let n: usize = request.path()[1..].parse().unwrap();
        answer(stream, "302 Found", &format!("location: {}", to[n]), b"")
    });
    let hosts: Vec<_> =
        places.iter().map(|url| url.rsplit_once('/').unwrap().0.replace("/latest/meta-data", "")).collect();
    let listing = Proxy::before(&origin.url(), &rule(&format!("follow_hosts = {hosts:?}\n")));
    let not_listing = Proxy::before(&origin.url(), &rule("follow_hosts = [\"elsewhere.example\"]\n"));
    for (n, place) in places.iter().enumerate() {
        let reply = listing.get(&format!("/{n}"));
        assert_eq!(seen(&reply), (502, "picaflor; detail=redirect-refused"), "{place}");
        let reply = not_listing.get(&format!("/{n}"));
        assert_eq!((reply.status(), reply.field("location")), (302, place.as_str()), "the client may go there itself");
    }
    let own = listing.address;
    let to_us = Origin::start(move |_, stream| answer(stream, "302 Found", &format!("location: http://{own}/0"), b""));
    let proxy = Proxy::before(&to_us.url(), &rule(&format!("follow_hosts = [\"http://{own}\"]\n")));
    assert_eq!(proxy.get("/").cache(), "picaflor; detail=redirect-refused");
    assert_eq!(near.count(), 0);
}

#[test]
fn a_client_that_forwards_reaches_no_origin_of_ours_by_a_redirect() {
    let inside = Origin::constant("cache-control: max-age=60", "inside");
    let to = inside.address;
    let outside = Origin::start(move |_, stream| answer(stream, "302 Found", &format!("location: http://{to}/"), b""));
    let config =
        format!("[forward]\nenabled = true\n[[origin]]\nhost = \"in.example\"\nurl = \"http://{to}\"\n{}", rule(""));
    let proxy = Proxy::start(&config);
    let reply = proxy.client().send("GET", &format!("{}/", outside.url()), &[], b"");
    assert_eq!((reply.status(), inside.count()), (302, 0));
}

#[test]
fn an_answer_is_for_no_more_clients_than_the_redirects_to_it() {
    let nginx = Nginx::start(
        "location = /private { add_header Cache-Control private always; return 302 /f; }
         location = /cookie { add_header Set-Cookie a=b always; return 302 /f; }
         location = /targeted { add_header Cache-Control no-store always; return 302 /t; }
         location = /t { add_header CDN-Cache-Control max-age=60; return 200 targeted; }
         location = /vary { add_header Vary Accept-Language always; return 302 /f; }
         location = /short { add_header Cache-Control 'no-cache, max-age=0' always; return 302 /f; }
         location = /f { add_header Cache-Control max-age=60; return 200 $http_accept_language; }",
    );
    let url = format!("http://{}", nginx.address);
    let proxy = Proxy::before(&url, &rule(""));
    for (path, is_hit) in [("/private", false), ("/cookie", false), ("/targeted", false), ("/short", true)] {
        assert_eq!(proxy.get(path).status(), 200);
        let again = proxy.get(path);
        assert_eq!((again.is_hit(), again.field("set-cookie")), (is_hit, ""), "{path} {}", again.cache());
    }
    for (language, is_hit) in [("de", false), ("es", false), ("de", true)] {
        let reply = proxy.get_with("/vary", &[&format!("accept-language: {language}")]);
        assert_eq!((reply.text().as_str(), reply.is_hit()), (language, is_hit));
        assert!(reply.field("vary").contains("Accept-Language"));
    }
    let open = Proxy::before(
        &url,
        &rule("response_remove = [\"Set-Cookie\"]\nresponse_set = { Cache-Control = \"max-age=9\" }\n"),
    );
    for path in ["/private", "/cookie"] {
        open.get(path);
        assert!(open.get(path).is_hit(), "the operator says otherwise: {path}");
    }
}

#[test]
fn a_redirect_that_is_not_followed_says_where_to_from_what_the_client_asked() {
    let nginx = Nginx::start(
        "location = /a { return 302 /deep/b; } location = /deep/b { return 302 https://elsewhere.example/x; }
         location = /c { return 302 /deep/d; } location = /deep/d { add_header Location ../e%20 always; return 300; }
         location = /s { return 301 https://test.example/s; } location = /bad { return 302 https://u:p@127.0.0.1/; }",
    );
    let proxy = Proxy::before(&format!("http://{}", nginx.address), &rule(""));
    for (path, status, location) in [
        ("/a", 302, "https://elsewhere.example/x"),
        ("/c", 300, "/e%20"),
        ("/s", 301, "https://test.example/s"),
        ("/bad", 302, "https://u:p@127.0.0.1/"),
    ] {
        let reply = proxy.get(path);
        assert_eq!((reply.status(), reply.field("location")), (status, location), "{path}");
    }
}

#[test]
fn an_origin_is_asked_by_the_name_of_its_url_where_that_is_wanted() {
    let origin = Origin::start(|request, stream| {
        let told = format!("{} {}", request.field("host"), request.field("x-forwarded-host"));
        ok(stream, "cache-control: no-store", told.as_bytes())
    });
    let (url, host) = (origin.url(), origin.address);
    for (more, told) in [("", "test.example".to_owned()), ("forward_host = false\n", host.to_string())] {
        let proxy = Proxy::start(&format!("[[origin]]\nurl = \"{url}\"\n{more}"));
        assert_eq!(proxy.get("/").text(), format!("{told} test.example"));
    }
}

#[test]
fn texts_are_replaced_in_what_is_stored_and_the_origin_confirms_it() {
    let nginx = Nginx::start("gzip on; gzip_min_length 1; location / { add_header Cache-Control no-cache; }");
    let page = "<a href=\"https://files.example/x\">".repeat(3000);
    nginx.file("index", page.as_bytes());
    nginx.file("other", page.as_bytes());
    let rules = "[[rule]]\npath = \"/index\"\nreplace = { \"https://files.example\" = \"http://own\" }\n";
    let proxy = Proxy::before(&format!("http://{}", nginx.address), rules);
    let ours = page.replace("https://files.example", "http://own");
    let out = proxy.folder.path().join("out");
    let url = format!("http://{}/index", proxy.address);
    let mut etag = String::new();
    for round in 0..3 {
        let (head, got) = curl(&out, &["-H", "Accept-Encoding: gzip", &url]);
        assert!(got == ours.as_bytes(), "round {round}: {head}");
        proxy.settle();
        let found = head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap().to_owned();
        assert!(found.starts_with("w/") && (round == 0 || found == etag), "{head}");
        assert_eq!(head.contains("fwd=stale; fwd-status=304"), round > 0, "{head}");
        etag = found;
    }
    let etag = proxy.get("/index").field("etag").to_owned();
    assert_eq!(proxy.get_with("/index", &[&format!("if-none-match: {etag}")]).status(), 304);
    let part = proxy.get_with("/index", &["range: bytes=0-19", &format!("if-range: {etag}")]);
    assert_eq!((part.status(), part.body.len()), (200, ours.len()), "a weak validator names no bytes");
    let part = proxy.get_with("/index", &["range: bytes=9-14"]);
    assert_eq!((part.status(), part.text().as_str()), (206, &ours[9..15]));
    assert_eq!(proxy.client().send("HEAD", "/index", &[], b"").field("etag"), etag);
    let other = proxy.get("/other");
    assert!(other.body == page.as_bytes() && other.field("etag").starts_with('"'), "no rule is for it");
}
