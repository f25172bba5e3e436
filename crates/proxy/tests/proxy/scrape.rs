//! `/metrics` as strict scrapers and linters read it, and what the admin listener says to a wrong method.

use std::collections::HashSet;

use crate::kit::{Client, Origin, Proxy};

#[test]
fn every_metric_has_its_help_and_its_type_once_and_before_it() {
    let origin = Origin::constant("cache-control: max-age=60", "x");
    let proxy = Proxy::before(&origin.url(), "");
    proxy.get("/a");
    let text = proxy.admin("GET", "/metrics").text();
    let (mut helped, mut typed, mut series, mut families) =
        (HashSet::new(), HashSet::new(), HashSet::new(), Vec::new());
    for line in text.lines().filter(|line| !line.is_empty()) {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("HELP"), Some(name), Some(help)) if !help.is_empty() => {
                assert!(helped.insert(name), "{line}");
            }
            (Some("#"), Some("TYPE"), Some(name), Some(_)) => assert!(typed.insert(name), "{line}"),
            _ => {
                let (name, value) = line.rsplit_once(' ').unwrap();
                assert!(value.parse::<f64>().is_ok() && series.insert(name), "{line}");
                let name = name.split('{').next().unwrap();
                let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
                let family = family.filter(|family| typed.contains(family)).unwrap_or(name);
                assert!(helped.contains(family) && typed.contains(family), "{line}");
                if families.last() != Some(&family) {
                    families.push(family);
                }
            }
        }
    }
    let different: HashSet<_> = families.iter().collect();
    assert_eq!(different.len(), families.len(), "the lines of one metric are together");
    assert!(families.len() > 80, "{}", families.len());
}

#[test]
fn a_wrong_method_is_told_the_right_one() {
    let origin = Origin::constant("", "x");
    let proxy = Proxy::before(&origin.url(), "");
    for (path, allowed) in [("/purge", "POST, PURGE"), ("/metrics", "GET"), ("/stats", "GET"), ("/health", "GET, HEAD")]
    {
        let reply = proxy.admin("DELETE", path);
        assert_eq!((reply.status(), reply.field("allow")), (405, allowed), "{path}");
    }
}

#[test]
fn the_dashboard_says_nothing_without_the_token() {
    let origin = Origin::constant("", "x");
    let proxy = Proxy::before(&origin.url(), "");
    let mut stranger = Client::new(proxy.admin);
    let page = stranger.get("/dashboard");
    assert_eq!((page.status(), page.field("content-type")), (200, "text/html; charset=utf-8"));
    let policy = page.field("content-security-policy");
    assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"), "{policy}");
    assert!(!page.text().contains("src=") && !page.text().contains(&proxy.token), "it is all there, and no secret");
    assert_eq!(stranger.get("/map").status(), 401);
    assert_eq!(proxy.admin("DELETE", "/map").status(), 405);
    let map: serde_json::Value = serde_json::from_str(&proxy.admin("GET", "/map").text()).unwrap();
    let volume = &map["volumes"][0];
    assert_eq!(volume["cells"].as_array().unwrap().len() as u64, volume["clusters"].as_u64().unwrap());
    assert_eq!(proxy.stats()["origins"][0]["paused"], false);
}
