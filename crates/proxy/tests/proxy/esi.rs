//! Pages that are put together of fragments: nginx has them, curl gets them.

use std::{io::Read, net::TcpStream, sync::Arc};

use crate::{
    kit::{Message, Origin, Proxy, eventually, ok},
    nginx::{Nginx, curl, noise},
};

const RULE: &str = "[[rule]]\npath = \"/pages/*\"\nesi = true\n";

/// Pages are fresh for long, fragments for longer, those below `/now/` never.
const LOCATIONS: &str =
    "location / { types { image/png png; } add_header Cache-Control max-age=600; default_type text/html; }
     location /now/ { add_header Cache-Control no-cache; }
     location = /500 { return 500; }
     location = /moved { return 302 /parts/a; }";

fn nginx(pages: &[(&str, &str)]) -> Nginx {
    let nginx = Nginx::start(LOCATIONS);
    for (name, body) in [("parts/a", "<i>a</i>"), ("parts/b", "<i>b</i>"), ("now/c", "<i>c</i>")] {
        nginx.file(name, body.as_bytes());
    }
    for (name, page) in pages {
        nginx.file(&format!("pages/{name}"), page.as_bytes());
    }
    nginx
}

fn before(nginx: &Nginx) -> Proxy {
    Proxy::before(&format!("http://{}", nginx.address), RULE)
}

/// A body that breaks off has no last chunk.
fn cut(proxy: &Proxy, path: &str) -> Option<String> {
    let mut client = proxy.client();
    client.write("GET", path, &["connection: close"], b"");
    let head = client.read_head()?;
    assert_eq!((head.status(), head.field("transfer-encoding")), (200, "chunked"), "{head:?}");
    let mut rest = Vec::new();
    let _ = client.stream.read_to_end(&mut rest);
    (!rest.ends_with(b"0\r\n\r\n")).then(|| String::from_utf8_lossy(&rest).into_owned())
}

#[test]
fn a_page_is_put_together_of_fragments_each_stored_by_its_own_lifetime() {
    let page = "<html><esi:remove>no ESI</esi:remove>1<esi:include src=\"/parts/a\"/>2<esi:include src='../parts/b'/>\
                <!--esi 3<esi:include src=\"http://test.example/now/c\"/>--><esi:comment text=\"x\"/></html>";
    let nginx = nginx(&[("all", page)]);
    let proxy = before(&nginx);
    let out = proxy.folder.path().join("out");
    let url = format!("http://{}/pages/all", proxy.address);
    for round in 0..3 {
        let (head, got) = curl(&out, &["--compressed", "-H", "Host: test.example", &url]);
        let got = String::from_utf8(got).unwrap();
        assert_eq!(got, "<html>1<i>a</i>2<i>b</i> 3<i>c</i></html>", "round {round}");
        assert!(head.contains("transfer-encoding: chunked") && head.contains("content-type: text/html"), "{head}");
        for gone in ["content-length", "etag", "last-modified", "accept-ranges"] {
            assert!(!head.contains(gone), "{gone} is the template's: {head}");
        }
        assert_eq!(head.contains("picaflor; hit"), round > 0, "the template is stored: {head}");
        proxy.settle();
    }
    for (path, times) in [("/pages/all", 1), ("/parts/a", 1), ("/parts/b", 1), ("/now/c", 3)] {
        nginx.was_asked(path, times);
    }
    let explained = proxy.admin("GET", "/explain?url=http://test.example/pages/all").text();
    assert!(explained.contains(&format!("{}", page.len())), "stored as it was sent: {explained}");
    assert!(proxy.purge("http://test.example/parts/a").text().contains("\"purged\":1"));
    nginx.file("parts/a", b"new");
    assert!(proxy.get("/pages/all").text().contains("1new2"), "a fragment is purged by itself");
}

#[test]
fn nothing_confirms_a_page_and_it_has_no_parts_while_all_else_has_both() {
    let nginx = nginx(&[("all", "<esi:include src='/parts/a'/>")]);
    nginx.file("pages/image.png", &noise(5000, 1));
    let proxy = before(&nginx);
    let etag = proxy.get_with("/parts/a", &[]).field("etag").to_owned();
    for _ in 0..2 {
        for field in [format!("if-none-match: {etag}"), "if-none-match: *".into(), "range: bytes=0-3".into()] {
            let reply = proxy.get_with("/pages/all", &[&field]);
            assert_eq!((reply.status(), reply.text().as_str()), (200, "<i>a</i>"), "{field}");
        }
    }
    let head = proxy.client().send("HEAD", "/pages/all", &[], b"");
    assert_eq!((head.status(), head.field("content-length"), head.field("etag")), (200, "", ""));
    let image = proxy.get("/pages/image.png");
    let etag = image.field("etag").to_owned();
    assert!(image.body == noise(5000, 1) && !etag.is_empty());
    let again = proxy.get_with("/pages/image.png", &[&format!("if-none-match: {etag}")]);
    assert_eq!((again.status(), again.field("etag")), (304, etag.as_str()));
}

#[test]
fn what_fails_has_an_alternative_an_exception_or_ends_the_page() {
    let tried = |inner: &str| {
        format!(
            "<esi:try><esi:attempt>[{inner}]</esi:attempt><esi:except>(<esi:include src='/parts/b'/>)</esi:except></esi:try>."
        )
    };
    let (a, fails) = ("<esi:include src='/parts/a'/>", "<esi:include src='/500'/>");
    let nested = tried(&tried(fails));
    let pages = [
        ("alt", "<esi:include src='/500' alt='/parts/b'/>.", "<i>b</i>."),
        ("continue", "1<esi:include src='/500' alt='/no' onerror='continue'/>2", "12"),
        ("moved", "1<esi:include src='/moved' onerror='continue'/>2", "12"),
        ("attempt", &*tried(a), "[<i>a</i>]."),
        ("except", &tried(&format!("{a}{fails}{a}")), "(<i>b</i>)."),
        ("nested", &nested, "[(<i>b</i>).]."),
    ];
    let files: Vec<_> = pages.iter().map(|(name, page, _)| (*name, *page)).collect();
    let nginx = nginx(&files);
    let long = "x".repeat(200_000);
    for (name, page) in [
        ("first", fails.to_owned()),
        ("bad-first", "<esi:vars/>".to_owned()),
        ("later", format!("{long}{fails}")),
        ("bad-later", format!("{long}<esi:include/>")),
        ("open", format!("{long}<esi:try>")),
    ] {
        nginx.file(&format!("pages/{name}"), page.as_bytes());
    }
    let proxy = before(&nginx);
    for (name, page, expected) in pages {
        for _ in 0..2 {
            assert_eq!(proxy.get(&format!("/pages/{name}")).text(), expected, "{page}");
        }
    }
    for name in ["first", "bad-first"] {
        let reply = proxy.get(&format!("/pages/{name}"));
        assert_eq!((reply.status(), reply.cache()), (502, "picaflor; detail=esi"), "{name}");
    }
    for name in ["later", "bad-later", "open"] {
        let got = cut(&proxy, &format!("/pages/{name}")).expect("it breaks off");
        assert!(got.contains("xxx") && !got.contains("esi:"), "{name}");
    }
    let stats = proxy.stats();
    assert_eq!(stats["proxy"]["origin_failures"]["esi"], 2);
    eventually("they are counted", || proxy.stats()["proxy"]["bodies_broken"]["cut-esi"] == 3);
}

#[test]
fn a_page_reaches_no_host_but_its_own_and_those_of_the_operator_and_these_without_credentials() {
    let other = Arc::new(Origin::constant("cache-control: max-age=60", "of another"));
    let named = Origin::start(|request, stream| {
        let told = ["authorization", "cookie", "host"].map(|name| request.field(name)).join("|");
        ok(stream, "cache-control: no-store", told.as_bytes())
    });
    let url = other.url();
    let page = move |src: &str| format!("[<esi:include src='{src}' onerror='continue'/>]");
    let origin = Origin::start(move |request, stream| {
        let fields = "content-type: text/html\ncache-control: no-store";
        match request.path() {
            "/own" => {
                let told = ["authorization", "cookie", "host"].map(|name| request.field(name)).join("|");
                ok(stream, "cache-control: no-store", told.as_bytes())
            }
            path => ok(stream, fields, page(&path["/pages/".len()..].replace("OTHER", &url)).as_bytes()),
        }
    });
    let config = format!(
        "{RULE}[forward]\nenabled = true\n[[origin]]\nurl = \"{}\"\n[[origin]]\nhost = \"named.example\"\nurl = \"{}\"\n",
        origin.url(),
        named.url()
    );
    let proxy = Proxy::start(&config);
    let own = ["authorization: Basic eA==", "cookie: a=b"];
    for (src, expected) in [
        ("/own", "[Basic eA==|a=b|test.example]"),
        ("http://test.example/own", "[Basic eA==|a=b|test.example]"),
        ("http://named.example/x", "[||named.example]"),
        ("OTHER/x", "[]"),
        ("//127.0.0.1:1/x", "[]"),
        ("http://any.example/own", "[]"),
        ("file:///etc/passwd", "[]"),
        ("http:/own", "[]"),
    ] {
        assert_eq!(proxy.get_with(&format!("/pages/{src}"), &own).text(), expected, "{src}");
    }
    let forward = |src: &str| {
        let url = format!("http://{}/pages/{src}", origin.address);
        proxy.client().send("GET", &url, &[], b"").text()
    };
    assert_eq!(forward("/own"), format!("[||{}]", origin.address));
    assert_eq!(forward("http://named.example/x"), "[]", "a client that forwards is not sent to origins");
    assert_eq!(other.count(), 0);
}

#[test]
fn pages_in_one_another_and_fragments_of_a_request_have_a_bound() {
    let many: String = (0..400).map(|n| format!("<esi:include src='/parts/a?{n}' onerror='continue'/>")).collect();
    let itself = "(<esi:include src='/pages/self' onerror='continue'/>)";
    let twice = "<esi:include src='/pages/twice' onerror='continue'/>x".repeat(9);
    let nginx = nginx(&[("many", &many), ("self", itself), ("twice", &twice)]);
    let proxy = before(&nginx);
    assert_eq!(proxy.get("/pages/many").text(), "<i>a</i>".repeat(256));
    assert_eq!(proxy.get("/pages/self").text(), "((((()))))");
    let count = proxy.get("/pages/twice").text().len();
    assert!(count <= 257 * 9, "256 fragments have nine each: {count}");
}

#[test]
fn an_origin_is_told_of_esi_and_what_it_says_to_surrogates_goes_no_further() {
    let page = "<esi:comment text='x'/>y";
    let origin = Origin::start(move |request, stream| {
        let said = match request.path() {
            "/pages/says" => "surrogate-control: max-age=9, content=\"ESI/1.0\"\ncontent-type: application/json",
            "/pages/denies" => "surrogate-control: max-age=9\ncontent-type: text/html",
            "/pages/image" => "content-type: image/svg",
            _ => "content-type: text/plain",
        };
        let told = format!("{said}\nx-told: {}", request.field("surrogate-capability"));
        ok(stream, &format!("cache-control: max-age=60\n{told}"), page.as_bytes())
    });
    let proxy = Proxy::before(&origin.url(), RULE);
    for _ in 0..2 {
        for (name, body) in [("says", "y"), ("denies", page), ("image", page), ("text", "y")] {
            let reply = proxy.get_with(&format!("/pages/{name}"), &["surrogate-capability: x=\"ESI/1.0\""]);
            assert_eq!((reply.text().as_str(), reply.field("surrogate-control")), (body, ""), "{name}");
            assert_eq!(reply.field("x-told"), "picaflor=\"ESI/1.0\"");
        }
    }
    let says = ["surrogate-capability: x=\"ESI/1.0\""];
    let other: Message = proxy.get_with("/others", &says);
    assert_eq!((other.text().as_str(), other.field("x-told")), (page, ""), "no rule is for it");
    let behind = Proxy::before(&origin.url(), &format!("{RULE}[front]\ntrusted = [\"127.0.0.1/32\"]\n"));
    assert_eq!(behind.get_with("/others", &says).field("x-told"), "x=\"ESI/1.0\"", "a front is believed");
    assert_eq!(behind.get_with("/pages/says", &says).field("x-told"), "picaflor=\"ESI/1.0\"");
}

#[test]
fn a_large_fragment_goes_through_as_it_comes_and_a_client_that_leaves_ends_it() {
    let nginx = nginx(&[("large", "<<esi:include src='/parts/large'/>>")]);
    let large = noise(6_000_000, 9);
    nginx.file("parts/large", &large);
    let proxy = before(&nginx);
    let out = proxy.folder.path().join("out");
    for _ in 0..2 {
        let (_, got) = curl(&out, &[&format!("http://{}/pages/large", proxy.address)]);
        assert!(got.len() == large.len() + 2 && got[1..=large.len()] == large[..]);
        proxy.settle();
    }
    let mut stream = TcpStream::connect(proxy.address).unwrap();
    std::io::Write::write_all(&mut stream, b"GET /pages/large HTTP/1.1\r\nHost: test.example\r\n\r\n").unwrap();
    stream.read_exact(&mut [0; 100]).unwrap();
    drop(stream);
    eventually("nothing of it is open", || proxy.stats()["proxy"]["connections"]["open"].as_u64() <= Some(1));
    assert_eq!(proxy.get("/pages/large").body.len(), large.len() + 2);
}

#[test]
fn clients_keep_a_page_no_longer_than_its_author_says_of_all_of_it() {
    let (page, expires) = ("[<esi:include src='/part'/>]", "expires: Fri, 01 Jan 2100 00:00:00 GMT\nage: 7");
    let origin = Origin::start(move |request, stream| {
        let (fields, body) = match request.path() {
            "/part" => ("cache-control: no-store", "part"),
            "/pages/lives" | "/own" => ("cache-control: public, max-age=600", page),
            "/pages/expires" => (expires, page),
            "/pages/private" => ("cache-control: private, max-age=600", page),
            "/pages/no-store" => ("cache-control: max-age=600, no-store", page),
            "/pages/both" => ("cache-control: max-age=9\ncdn-cache-control: max-age=600\nage: 5", page),
            "/pages/ours" => ("cdn-cache-control: max-age=600", page),
            _ => ("cache-control: max-age=9\ncdn-cache-control: max-age=?", page),
        };
        ok(stream, &format!("content-type: text/html\ndate: Thu, 01 Jan 2026 00:00:00 GMT\n{fields}"), body.as_bytes())
    });
    let proxy = Proxy::before(&origin.url(), RULE);
    for (name, said) in [
        ("lives", "no-cache"),
        ("expires", "no-cache"),
        ("private", "private, no-cache"),
        ("no-store", "no-store"),
        ("both", "max-age=9"),
        ("ours", "no-cache"),
        ("bad", "no-cache"),
    ] {
        for _ in 0..2 {
            let reply = proxy.get(&format!("/pages/{name}"));
            assert_eq!((reply.text().as_str(), reply.field("cache-control")), ("[part]", said), "{name}");
            let gone = ["expires", "age", "cdn-cache-control"].map(|name| reply.field(name));
            assert_eq!(gone, [""; 3], "{name}: of the template");
            assert!(!reply.field("date").contains("Jan 2026"), "{name}: the page is made now");
        }
    }
    assert_eq!(proxy.get("/own").field("cache-control"), "public, max-age=600", "no rule is for it");
}
