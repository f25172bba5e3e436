//! New certificates while the proxy runs.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

use picaflor_proxy::Low;

use crate::{
    certs::{Ca, Issued, TlsClient, write},
    kit::{Origin, Proxy, eventually},
};

fn config(issued: &Issued) -> String {
    format!("[tls]\nlisten = [\"127.0.0.1:0\"]\n{}", issued.table())
}

/// Puts one certificate in the place of another, as a renewal does.
fn renew(old: &Issued, new: &Issued) {
    std::fs::copy(&new.key, &old.key).unwrap();
    std::fs::copy(&new.file, &old.file).unwrap();
}

fn shown(ca: &Ca, proxy: &Proxy) -> Vec<u8> {
    ca.client(proxy.by_tls.unwrap()).tls().peer_certificates().unwrap()[0].to_vec()
}

#[test]
fn a_reload_under_load_drops_nothing() {
    let (ca, origin) = (Ca::new(), Origin::constant("cache-control: max-age=1", "whole"));
    let (served, others) = (ca.issue(&["test.example"]), [0, 1].map(|_| ca.issue(&["test.example"])));
    let proxy = Proxy::before(&origin.url(), &config(&served));
    let address = proxy.by_tls.unwrap();
    let (done, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for kept in [true, true, false, false] {
            let (done, asked, config) = (&done, &asked, ca.trusting(&[12, 13]));
            scope.spawn(move || {
                let connect = || TlsClient::new(address, &config, "test.example", b"").unwrap();
                let mut client = connect();
                while !done.load(SeqCst) {
                    if !kept {
                        client = connect();
                    }
                    assert_eq!(client.get("/").text(), "whole");
                    asked.fetch_add(1, SeqCst);
                }
            });
        }
        for n in 0..50 {
            let before = asked.load(SeqCst);
            eventually("requests go on", || asked.load(SeqCst) > before + 20);
            renew(&served, &others[n % 2]);
            let reply = proxy.admin("POST", "/reload");
            assert_eq!((reply.status(), reply.text().contains("1 certificate read")), (200, true), "{}", reply.text());
            assert_eq!(shown(&ca, &proxy), others[n % 2].certificate.der().to_vec());
        }
        done.store(true, SeqCst);
    });
    let failed: u64 =
        proxy.stats()["proxy"]["tls_failures"].as_object().unwrap().values().filter_map(|n| n.as_u64()).sum();
    assert_eq!(failed, 0);
}

#[test]
fn what_would_not_do_changes_nothing_and_is_named() {
    let (ca, origin) = (Ca::new(), Origin::constant("cache-control: max-age=60", "whole"));
    let (served, other) = (ca.issue(&["test.example"]), ca.issue(&["test.example"]));
    let proxy = Proxy::before(&origin.url(), &config(&served));
    let first = served.certificate.der().to_vec();
    std::fs::copy(&other.key, &served.key).unwrap();
    let reply = proxy.admin("POST", "/reload");
    let named = format!("{}: not the key of the certificate", served.key.display());
    assert!(reply.status() == 409 && reply.text().contains(&named), "{}", reply.text());
    assert!(reply.text().contains("nothing was changed"), "{}", reply.text());
    write(&served.file, "");
    assert_eq!(proxy.admin("POST", "/reload").status(), 409);
    assert_eq!(shown(&ca, &proxy), first, "the old one is kept");
    std::fs::copy(&other.file, &served.file).unwrap();
    assert_eq!(proxy.admin("POST", "/reload").status(), 200);
    assert_eq!(shown(&ca, &proxy), other.certificate.der().to_vec());
    assert_eq!(proxy.admin("GET", "/reload").status(), 405);
}

#[test]
fn rules_that_are_read_anew_are_for_requests_from_then_on() {
    let origin = Origin::constant("cache-control: max-age=60", "whole");
    let proxy = Proxy::before(&origin.url(), "");
    let parse = |text: &str| Low::parse("p.toml", text).unwrap();
    let said = Arc::new(Mutex::new(parse("[[rule]]\npath = \"/a\"\nbypass = true\n")));
    let source = said.clone();
    proxy.server().reload_from(parse(""), move || Ok(source.lock().unwrap().clone()));
    proxy.get("/a");
    assert!(proxy.get("/a").is_hit());
    assert_eq!(proxy.server().reload().unwrap(), "no certificates are configured; 1 rule read");
    assert!(proxy.get("/a").cache().contains("detail=rule"));
    *said.lock().unwrap() = parse("[[rule]]\npath = \"a\"\n");
    let refused = proxy.server().reload().unwrap_err().to_string();
    assert!(refused.starts_with("rule.path: `a` does not begin with `/`"), "{refused}");
    assert!(proxy.get("/a").cache().contains("detail=rule"), "the rules before go on");
    *said.lock().unwrap() = parse("");
    assert!(proxy.server().reload().is_ok());
    assert!(proxy.get("/a").is_hit(), "what was stored before is there");
}

#[test]
fn a_configuration_read_anew_may_have_a_larger_store() {
    let origin = Origin::constant("cache-control: max-age=60", "whole");
    let proxy = Proxy::before(&origin.url(), "");
    let parse = |text: &str| Low::parse("p.toml", text).unwrap();
    let capacity = |given: &str| parse(&format!("[store]\ncapacity = \"{given}\"\n"));
    let has = || proxy.stats()["store"]["capacity"].as_u64().unwrap();
    let before = has();
    let said = Arc::new(Mutex::new(parse("")));
    let source = said.clone();
    proxy.server().reload_from(parse(""), move || Ok(source.lock().unwrap().clone()));
    proxy.get("/a");
    assert!(proxy.get("/a").is_hit());
    let larger = format!("{}MiB", (before >> 20) + 64);
    *said.lock().unwrap() = capacity(&larger);
    let reply = proxy.admin("POST", "/reload");
    let text = String::from_utf8(reply.body.to_vec()).unwrap();
    assert!(reply.status() == 200 && text.contains("the store has"), "{text}");
    assert_eq!(has(), before + (64 << 20));
    assert!(proxy.get("/a").is_hit());
    for (given, why) in [("32MiB", "with fewer"), ("900TiB", "8 times")] {
        *said.lock().unwrap() = capacity(given);
        let refused = proxy.server().reload().unwrap_err().to_string();
        assert!(refused.starts_with("store.capacity: ") && refused.contains(why), "{refused}");
        assert_eq!(refused.matches("capacity: ").count(), 1, "{refused}");
        assert!(refused.ends_with("; nothing was changed") && has() == before + (64 << 20), "{refused}");
    }
    // Said no more, it stays.
    *said.lock().unwrap() = parse("");
    assert!(proxy.server().reload().is_ok() && has() == before + (64 << 20));
}

#[test]
fn a_configuration_read_anew_may_have_other_certificates_and_nothing_else() {
    let (ca, origin) = (Ca::new(), Origin::constant("cache-control: max-age=60", "whole"));
    let (served, other) = (ca.issue(&["test.example"]), ca.issue(&["test.example", "b.example"]));
    let proxy = Proxy::before(&origin.url(), &config(&served));
    let parse = |text: &str| Low::parse("p.toml", text).unwrap();
    let said = Arc::new(Mutex::new(parse(&config(&other))));
    let source = said.clone();
    proxy.server().reload_from(parse(&config(&served)), move || Ok(source.lock().unwrap().clone()));
    assert_eq!(proxy.server().reload().unwrap(), "1 certificate read");
    assert_eq!(shown(&ca, &proxy), other.certificate.der().to_vec());
    let more = "workers = 3\n[limits]\nidle_timeout = \"5s\"\n[cache]\nenabled = false\n";
    *said.lock().unwrap() = parse(&format!("{more}{}", config(&served)));
    let error = proxy.server().reload().unwrap_err().to_string();
    let named = "only a restart takes a change of workers, cache.enabled, limits.idle_timeout; nothing was changed";
    assert_eq!(error, named);
    *said.lock().unwrap() = parse("[tls]\nlisten = [\"127.0.0.1:0\"]\n");
    assert!(proxy.server().reload().unwrap_err().to_string().contains("a [[tls.certificate]] is needed"));
    assert_eq!(shown(&ca, &proxy), other.certificate.der().to_vec());
    *said.lock().unwrap() = parse(&config(&served));
    assert!(proxy.server().reload().is_ok());
    assert_eq!(shown(&ca, &proxy), served.certificate.der().to_vec());
}
