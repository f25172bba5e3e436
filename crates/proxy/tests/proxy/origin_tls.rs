//! `https` origins: a real nginx that is trusted or not, and what each refusal is called.

use std::{net::TcpListener, path::Path};

use picaflor_proxy::Low;
use rcgen::date_time_ymd;

use crate::{
    certs::{Ca, Issued},
    kit::{Message, Origin, Proxy, eventually},
    nginx::{Nginx, noise},
};

fn nginx(issued: &Issued) -> Nginx {
    let (file, key) = (issued.file.display(), issued.key.display());
    let tells = "add_header X-Sni \"$ssl_server_name\"; add_header X-Reused \"$connection_requests\";";
    let nginx = Nginx::start_by(
        "reuseport ssl",
        &format!(
            "ssl_certificate {file}; ssl_certificate_key {key}; location / {{ add_header Cache-Control max-age=60; {tells} }}"
        ),
    );
    nginx.file("f", &noise(300_000, 1));
    nginx.file("g", b"short");
    nginx
}

/// In front of it, with more of its `[[origin]]`.
fn proxy(nginx: &Nginx, more: &str) -> Proxy {
    Proxy::start(&format!("[[origin]]\nurl = \"https://{}\"\n{more}", nginx.address))
}

fn trusting(ca: &Path, more: &str) -> String {
    format!("ca = {ca:?}\n{more}")
}

fn refused(proxy: &Proxy, path: &str) -> (u16, String) {
    let reply: Message = proxy.get(path);
    (reply.status(), reply.cache().to_owned())
}

#[test]
fn an_origin_is_trusted_by_its_authority_and_for_its_name() {
    let ca = Ca::new();
    let nginx = nginx(&ca.issue(&["127.0.0.1", "origin.example"]));
    let proxy = proxy(&nginx, &trusting(&ca.file(), "name = \"origin.example\"\n"));
    let miss = proxy.get("/f");
    assert!(miss.body == noise(300_000, 1) && miss.cache().contains("fwd=uri-miss"), "{}", miss.cache());
    assert_eq!(miss.field("x-sni"), "origin.example");
    assert!(proxy.get("/f").is_hit());
    let reused = (0..9).map(|n| proxy.get(&format!("/g?{n}")).field("x-reused").parse::<u32>().unwrap()).max();
    assert!(reused > Some(1), "its connections are kept");
    nginx.was_asked("/f", 1);
    let by_address = self::proxy(&nginx, &trusting(&ca.file(), ""));
    let reply = by_address.get("/g");
    assert_eq!((reply.status(), reply.field("x-sni")), (200, ""), "an address is not asked for by name");
}

#[test]
fn what_is_not_trusted_is_not_asked_and_the_reason_has_a_name() {
    let (ca, other) = (Ca::new(), Ca::new());
    let good = nginx(&ca.issue(&["127.0.0.1"]));
    let expired = nginx(&ca.issue_with(&["127.0.0.1"], |params| {
        (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1));
    }));
    let early = nginx(&ca.issue_with(&["127.0.0.1"], |params| params.not_before = date_time_ymd(2200, 1, 1)));
    let elsewhere = nginx(&ca.issue(&["elsewhere.example"]));
    let plain = Nginx::start_by("reuseport", "");
    for (nginx, more, why) in [
        (&good, trusting(&other.file(), ""), "tls-untrusted"),
        (&good, String::new(), "tls-untrusted"),
        (&good, trusting(&ca.file(), "name = \"origin.example\"\n"), "tls-name"),
        (&expired, trusting(&ca.file(), ""), "tls-expired"),
        (&early, trusting(&ca.file(), ""), "tls-expired"),
        (&elsewhere, trusting(&ca.file(), ""), "tls-name"),
        (&plain, trusting(&ca.file(), ""), "tls-handshake"),
    ] {
        let proxy = proxy(nginx, &more);
        assert_eq!(refused(&proxy, "/g"), (502, format!("picaflor; detail={why}")), "{more}");
        assert_eq!(proxy.stats()["proxy"]["origin_failures"][why], 1);
        let reply = proxy.client().send("POST", "/g", &[], b"x");
        assert_eq!(reply.cache(), format!("picaflor; detail={why}"));
        nginx.was_asked("/g", 0);
    }
    for nginx in [&good, &expired, &elsewhere] {
        assert_eq!(proxy(nginx, "verify = false\n").get("/g").text(), "short", "it was asked for");
    }
}

#[test]
fn a_certificate_that_is_its_own_authority_is_trusted_where_it_is_the_one_in_the_file() {
    let ca = Ca::new();
    let [own, other] = [0, 1].map(|_| ca.own_authority("127.0.0.1", |_| {}));
    let old = ca.own_authority("127.0.0.1", |params| params.not_after = date_time_ymd(2021, 1, 1));
    let [nginx, old_nginx] = [&own, &old].map(nginx);
    assert_eq!(proxy(&nginx, &trusting(&own.file, "")).get("/g").text(), "short");
    for (nginx, file, more, why) in [
        (&nginx, &other.file, "", "tls-"),
        (&nginx, &own.file, "name = \"origin.example\"\n", "tls-name"),
        (&old_nginx, &old.file, "", "tls-expired"),
    ] {
        let (status, cache) = refused(&proxy(nginx, &trusting(file, more)), "/g");
        assert!(status == 502 && cache.contains(why), "{cache}");
    }
}

#[test]
fn a_stale_answer_bridges_an_origin_that_is_not_trusted_any_more() {
    let (ca, other) = (Ca::new(), Ca::new());
    let nginx = nginx(&ca.issue(&["127.0.0.1"]));
    let trusted = ca.folder.path().join("trusted.pem");
    std::fs::copy(other.file(), &trusted).unwrap();
    let proxy = proxy(&nginx, &trusting(&trusted, ""));
    assert_eq!(refused(&proxy, "/g").0, 502);
    std::fs::copy(ca.file(), &trusted).unwrap();
    assert_eq!(refused(&proxy, "/g").0, 502, "until it is read");
    assert_eq!(proxy.admin("POST", "/reload").status(), 200);
    assert_eq!(proxy.get("/g").text(), "short");
    std::fs::write(&trusted, "").unwrap();
    let reply = proxy.admin("POST", "/reload");
    let named = format!("origin.ca: {}: has no certificate", trusted.display());
    assert!(reply.status() == 409 && reply.text().contains(&named), "{}", reply.text());
    assert_eq!(proxy.get("/g?again").text(), "short", "what was trusted is");
}

#[test]
fn an_origin_that_says_nothing_in_the_handshake_is_one_that_cannot_be_connected_to() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", silent.local_addr().unwrap());
    let ca = Ca::new();
    let config = "[limits]\nconnect_timeout = \"1s\"\n[[origin]]\n";
    let proxy = Proxy::start(&format!("{config}url = \"{url}\"\n{}", trusting(&ca.file(), "")));
    assert_eq!(refused(&proxy, "/"), (504, "picaflor; detail=connect-timeout".into()));
    assert_eq!(refused(&proxy, "/other"), (504, "picaflor; detail=paused".into()));
    drop(silent);
    eventually("it refuses", || refused(&proxy, "/").0 == 502);
}

#[test]
fn what_cannot_be_trusted_is_refused_at_the_start() {
    let ca = Ca::new();
    let file = ca.file();
    let [one, other] = [0, 1].map(|_| ca.issue(&["picaflor.example"]));
    let refused = |text: &str| {
        let mut low = Low::parse("p.toml", text).unwrap();
        low.store.path = Some(ca.folder.path().join("store"));
        low.resolve().unwrap_err().to_string()
    };
    let origin = |url: &str, more: &str| format!("[[origin]]\nurl = \"{url}\"\n{more}");
    for (url, more, start) in [
        ("http://a", &*format!("ca = {file:?}\n"), "origin.ca: `http://a` is not https://"),
        ("http://a", "verify = false\n", "origin.verify: `http://a` is not https://"),
        ("http://a", "http2 = true\n", "origin.http2: `http://a` is not https://"),
        ("http://a", "certificate = \"/no/such\"\n", "origin.certificate: `http://a` is not https://"),
        ("https://a", "ca = \"/no/such\"\n", "origin.ca: /no/such: "),
        ("https://a", "certificate = \"/no/such\"\n", "origin.certificate: /no/such: "),
        ("https://a", &format!("key = {file:?}\n"), "origin.key: no certificate is given for it"),
        ("https://a", &format!("certificate = {:?}\nkey = {:?}\n", one.file, other.key), "origin.key: "),
        ("https://a", &format!("certificate = {:?}\n", one.file), "origin.key: "),
        ("https://a", &format!("verify = false\nca = {file:?}\n"), "origin.verify: false, and a ca is given"),
        ("https://a", "verify = false\nname = \"a b\"\n", "origin.name: `a b` is no name"),
    ] {
        let e = refused(&origin(url, more));
        assert!(e.starts_with(start), "{e}");
    }
    let one = origin("https://a", &format!("host = \"one\"\nca = {file:?}\n"));
    let e = refused(&(one + &origin("https://A", "host = \"two\"\nverify = false\n")));
    assert!(e.contains("different ca, name or verify"), "{e}");
}

#[test]
fn a_private_authority_does_not_make_forward_clients_trusted() {
    let (ca, origin) = (Ca::new(), Origin::constant("cache-control: max-age=60", "near"));
    let nginx = nginx(&ca.issue(&["127.0.0.1"]));
    let more = trusting(&ca.file(), "host = \"own.example\"\n[forward]\nenabled = true\n");
    let proxy = proxy(&nginx, &more);
    let reply = proxy.client().send("GET", &format!("https://{}/g", nginx.address), &[], b"");
    assert_eq!(reply.cache(), "picaflor; detail=scheme", "it goes through CONNECT");
    assert_eq!(proxy.client().send("GET", &format!("{}/", origin.url()), &[], b"").text(), "near");
}

/// Wants a certificate of `ours`; each connection is for one request.
fn asking(issued: &Issued, ours: &Ca) -> Nginx {
    let nginx = Nginx::start_by(
        "reuseport ssl",
        &format!(
            "ssl_certificate {}; ssl_certificate_key {}; ssl_client_certificate {}; ssl_verify_client on;
             keepalive_timeout 0; location / {{ add_header X-Serial $ssl_client_serial; }}",
            issued.file.display(),
            issued.key.display(),
            ours.file().display()
        ),
    );
    nginx.file("g", b"short");
    nginx
}

#[test]
fn an_origin_that_asks_for_a_certificate_is_shown_ours_and_a_new_one_after_a_reload() {
    let (ca, ours) = (Ca::new(), Ca::new());
    let nginx = asking(&ca.issue(&["127.0.0.1"]), &ours);
    let shown = ours.folder.path().join("shown");
    let (file, key) = (shown.with_extension("pem"), shown.with_extension("key"));
    let show = |issued: &Issued| {
        std::fs::copy(&issued.file, &file).unwrap();
        std::fs::copy(&issued.key, &key).unwrap();
    };
    let serial =
        |number: u64| ours.issue_with(&["picaflor.example"], |params| params.serial_number = Some(number.into()));
    show(&serial(0x11));
    let config = trusting(&ca.file(), &format!("certificate = {file:?}\nkey = {key:?}\n"));
    let proxy = proxy(&nginx, &config);
    let asked = |n: u8| {
        let reply = proxy.get(&format!("/g?{n}"));
        (reply.status(), reply.field("x-serial").to_owned())
    };
    assert_eq!(asked(1), (200, "11".into()));
    show(&serial(0x22));
    assert_eq!(asked(2), (200, "11".into()), "until it is read");
    assert_eq!(proxy.admin("POST", "/reload").status(), 200);
    assert_eq!(asked(3), (200, "22".into()));
    std::fs::copy(&serial(0x33).key, &key).unwrap();
    let reply = proxy.admin("POST", "/reload");
    let named = format!("origin.key: {}: not the key of the certificate", key.display());
    assert!(reply.status() == 409 && reply.text().contains(&named), "{}", reply.text());
    assert_eq!(asked(4), (200, "22".into()), "what was shown is");
    let both = serial(0x44);
    std::fs::write(&file, [std::fs::read(&both.file).unwrap(), std::fs::read(&both.key).unwrap()].concat()).unwrap();
    let in_one_file = self::proxy(&nginx, &trusting(&ca.file(), &format!("certificate = {file:?}\n")));
    assert_eq!(in_one_file.get("/g").field("x-serial"), "44");
    let none = self::proxy(&nginx, &trusting(&ca.file(), ""));
    let reply = none.get("/g");
    assert!(reply.status() == 400 && reply.text().contains("No required SSL certificate"), "{}", reply.text());
    let other = ca.issue(&["picaflor.example"]);
    let more = format!("certificate = {:?}\nkey = {:?}\n", other.file, other.key);
    assert_eq!(self::proxy(&nginx, &trusting(&ca.file(), &more)).get("/g").status(), 400, "of another authority");
}

#[test]
fn an_origin_that_ends_the_connection_for_want_of_a_certificate_has_a_reason_of_its_own() {
    let (ca, ours) = (Ca::new(), Ca::new());
    let behind = Origin::constant("cache-control: max-age=60", "behind");
    let origin = Proxy::start(&format!(
        "[tls]\nlisten = [\"127.0.0.1:0\"]\nclient_ca = {:?}\n{}[[origin]]\nurl = \"{}\"\n",
        ours.file(),
        ca.issue(&["127.0.0.1"]).table(),
        behind.url()
    ));
    let url = format!("https://{}", origin.by_tls.unwrap());
    let proxy = |more: &str| Proxy::start(&format!("[[origin]]\nurl = \"{url}\"\n{}", trusting(&ca.file(), more)));
    let without = proxy("");
    // One that ends it before all was sent may be heard as `closed`.
    eventually("it says so", || refused(&without, "/g") == (502, "picaflor; detail=tls-refused".into()));
    let shown = ours.issue(&["picaflor.example"]);
    let with = proxy(&format!("certificate = {:?}\nkey = {:?}\n", shown.file, shown.key));
    assert_eq!(with.get("/g").text(), "behind");
}
