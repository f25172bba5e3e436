//! The operator's rules, as clients and origins see them.

use crate::kit::{Origin, Proxy, eventually, ok};

/// Says what it was asked, and whatever else the test wants.
fn echo(fields: &'static str) -> Origin {
    Origin::start(move |request, stream| {
        let secret = request.field("x-secret");
        ok(stream, fields, format!("{} {} {secret}", request.path(), request.field("accept-language")).as_bytes())
    })
}

#[test]
fn a_lifetime_is_given_where_there_is_none_and_another_where_there_is_one() {
    let origin = echo("cache-control: no-cache\netag: \"1\"");
    let rules = "[[rule]]\nhost = \"test.*\"\npath = \"*.css\"\nttl = \"1h\"\n\
                 [[rule]]\npath = \"/short/*\"\nttl = \"0s\"\nstale_if_error = \"1d\"\n";
    let proxy = Proxy::before(&origin.url(), rules);
    for (path, hits) in [("/a.css", true), ("/a.html", false), ("/short/a.css", false)] {
        proxy.get(path);
        assert_eq!(proxy.get(path).is_hit(), hits, "{path}");
    }
    assert!(proxy.get("/a.css").cache().contains("ttl=35"));
    assert!(proxy.get_with("/a.css", &["host: other.example"]).status() > 0);
    let nothing = echo("");
    let proxy = Proxy::before(&nothing.url(), rules);
    proxy.get("/a.css");
    assert!(proxy.get("/a.css").is_hit(), "the origin says nothing");
}

#[test]
fn what_must_not_be_stored_is_not_whatever_a_rule_says_of_its_lifetime() {
    for fields in ["cache-control: no-store", "cache-control: private", "set-cookie: a=b\ncache-control: max-age=60"] {
        let origin = echo(fields);
        let proxy = Proxy::before(&origin.url(), "[[rule]]\nttl = \"1h\"\n");
        proxy.get("/");
        assert!(!proxy.get("/").is_hit(), "{fields}");
    }
    let origin = echo("set-cookie: a=b\ncache-control: max-age=60");
    let proxy = Proxy::before(&origin.url(), "[[rule]]\nresponse_remove = [\"Set-Cookie\"]\n");
    assert_eq!(proxy.get("/").field("set-cookie"), "");
    assert!(proxy.get("/").is_hit(), "without the cookie it is for everybody");
}

#[test]
fn the_query_of_the_key_is_what_the_origin_is_asked() {
    let origin = echo("cache-control: max-age=60");
    let rules = "[[rule]]\npath = \"/a\"\nquery_drop = [\"utm_*\", \"fbclid\"]\nquery_sort = true\n\
                 [[rule]]\npath = \"/b\"\nquery_keep = [\"page\"]\n";
    let proxy = Proxy::before(&origin.url(), rules);
    assert_eq!(proxy.get("/a?z=1&utm_source=x&b=2").text().trim(), "/a?b=2&z=1");
    for (path, hits) in [
        ("/a?b=2&z=1", true),
        ("/a?fbclid=7&z=1&b=2", true),
        ("/a?b=2&z=2", false),
        ("/b?page=1&x=1", false),
        ("/b?y&page=1", true),
        ("/c?utm_source=x", false),
    ] {
        assert_eq!(proxy.get(path).is_hit(), hits, "{path}");
    }
    assert_eq!(proxy.get("/c?utm_source=x").text().trim(), "/c?utm_source=x", "no rule is for it");
    let purged = proxy.admin("POST", "/purge?url=http://test.example/a?utm_source=y&z=1&b=2");
    assert!(purged.text().contains("\"purged\":1"), "as it is stored: {}", purged.text());
}

#[test]
fn requests_are_passed_by_changed_and_not_obeyed_as_rules_say() {
    let origin = echo("cache-control: max-age=60\nvary: accept-language");
    let rules = "[[rule]]\npath = \"/live/*\"\nbypass = true\n\
                 [[rule]]\npath = \"/one\"\nrequest_remove = [\"Accept-Language\"]\nrequest_set = { X-Secret = \"s3\" }\n\
                 [[rule]]\npath = \"/deaf\"\nclient_directives = \"ignore\"\n\
                 [[rule]]\npath = \"/small\"\nmax_object = \"4 B\"\n";
    let proxy = Proxy::before(&origin.url(), rules);
    proxy.get("/live/x");
    let passed = proxy.get("/live/x");
    assert!(passed.cache().contains("fwd=bypass; fwd-status=200; detail=rule"), "{}", passed.cache());
    assert_eq!(proxy.get_with("/one", &["accept-language: de"]).text(), "/one  s3");
    assert!(proxy.get_with("/one", &["accept-language: es"]).is_hit(), "one variant");
    for (path, hits) in [("/deaf", true), ("/hears", false)] {
        proxy.get(path);
        assert_eq!(proxy.get_with(path, &["cache-control: no-cache"]).is_hit(), hits, "{path}");
    }
    assert!(proxy.get("/small").cache().contains("detail=too-large"));
    assert!(!proxy.get("/small").is_hit());
}

#[test]
fn what_clients_get_is_what_the_rule_makes_of_it_also_from_the_store() {
    let origin = echo("cache-control: max-age=60\nx-powered-by: php\nserver: o");
    let rules = "[[rule]]\nresponse_remove = [\"X-Powered-By\"]\nresponse_set = { Server = \"edge\" }\n";
    let proxy = Proxy::before(&origin.url(), rules);
    for n in 0..3 {
        let got = proxy.get("/");
        assert_eq!(got.is_hit(), n > 0);
        assert_eq!((got.field("x-powered-by"), got.field("server")), ("", "edge"));
    }
    let passed = proxy.client().send("POST", "/", &[], b"");
    assert_eq!((passed.field("x-powered-by"), passed.field("server")), ("", "edge"));
}

#[test]
fn what_clients_say_of_caches_counts_as_the_rule_says_also_for_what_is_in_memory() {
    let origin = echo("cache-control: max-age=60");
    let rules = "[[rule]]\npath = \"/still/*\"\nclient_directives = \"ignore\"\n";
    let proxy = Proxy::before(&origin.url(), rules);
    for (path, hits) in [("/still/a", true), ("/moved/a", false)] {
        eventually("it is in memory", || proxy.fast(path));
        let count = || proxy.stats()["proxy"]["requests"]["hit-fast"].as_u64().unwrap();
        let before = count();
        for field in ["cache-control: no-cache", "pragma: no-cache"] {
            assert_eq!(proxy.get_with(path, &[field]).is_hit(), hits, "{path} {field}");
        }
        assert_eq!(count() - before, if hits { 2 } else { 0 });
    }
}

#[test]
fn a_class_of_devices_shares_what_differs_by_agent() {
    for fields in ["cache-control: max-age=60", "cache-control: max-age=60\nvary: User-Agent"] {
        let origin =
            Origin::start(move |request, stream| ok(stream, fields, request.field("x-device-class").as_bytes()));
        let proxy = Proxy::before(&origin.url(), "[[rule]]\npath = \"/page\"\ndevice_class = true\n");
        let agents = [
            ("user-agent: Mozilla/5.0 (iPhone; CPU iPhone OS 17_0 like Mac OS X) Mobile/15E148", "phone", false),
            ("user-agent: Mozilla/5.0 (Linux; Android 14; Pixel 8) Chrome/120.0 Mobile Safari/537.36", "phone", true),
            ("user-agent: Mozilla/5.0 (X11; Linux x86_64; rv:120.0) Gecko/20100101 Firefox/120.0", "desktop", false),
            ("user-agent: curl/8.0", "desktop", true),
            ("x-device-class: phone", "desktop", true),
        ];
        for (agent, class, is_hit) in agents {
            let reply = proxy.get_with("/page", &[agent]);
            assert_eq!((reply.text().as_str(), reply.is_hit()), (class, is_hit), "{agent}");
            assert_eq!(reply.field("vary"), "User-Agent");
        }
        assert_eq!(origin.count(), 2);
        assert_eq!(proxy.get_with("/other", &["x-device-class: mine"]).text(), "mine", "of no rule");
    }
}
