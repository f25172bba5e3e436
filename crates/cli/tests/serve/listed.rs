//! `picaflor ls`, `du` and `get` of a running server.

use std::process::{Command, Output};

use crate::kit::{HOST, Origin, Serve, TOKEN, noise, ok};

fn run(serve: &Serve, arguments: &[&str]) -> Output {
    let (name, rest) = arguments.split_first().unwrap();
    let admin = format!("http://{}", serve.admin);
    let place = if *name == "du" { vec!["--admin", &admin] } else { vec![&*admin] };
    let command = [&[*name], &place[..], &["--token", TOKEN], rest].concat();
    Command::new(env!("CARGO_BIN_EXE_picaflor")).args(command).output().unwrap()
}

fn said(serve: &Serve, arguments: &[&str]) -> String {
    let done = run(serve, arguments);
    assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

#[test]
fn what_a_server_has_is_listed_and_summed_up() {
    let folder = tempfile::tempdir().unwrap();
    let origin = Origin::start(|_| {
        let fields = "cache-control: max-age=900\r\ncontent-type: text/plain; charset=utf-8\r\nsurrogate-key: one two\r\n\
                      cache-groups: \"front page\"";
        ok(fields, b"four")
    });
    let serve = Serve::start(folder.path(), origin.address, &["--capacity", "64MiB"]);
    for path in ["/a", "/b", "/c"] {
        serve.get_until_hit(path, "");
    }
    let keys = said(&serve, &["ls"]);
    let mut lines: Vec<_> = keys.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines.len(), 3, "{keys}");
    assert!(lines[0].starts_with("origin://") && lines[0].ends_with("/a"), "{keys}");
    assert_eq!(said(&serve, &["ls", "--prefix", lines[1], "--long"]).lines().count(), 1);
    assert_eq!(said(&serve, &["ls", "-n", "2"]).lines().count(), 2);
    let long = said(&serve, &["ls", "--long"]);
    assert!(long.lines().all(|line| ["200", "fresh", "text/plain", "4 B"].iter().all(|w| line.contains(w))), "{long}");
    let tags = said(&serve, &["du", "--by", "tag", "--format", "json"]);
    assert!(tags.contains(r#"{"bytes":12,"name":"one","objects":3}"#) && tags.contains(r#""name":"two""#), "{tags}");
    let groups = said(&serve, &["du", "--by", "cache-group"]);
    assert!(groups.trim_end().ends_with(" \"front page\"") && groups.lines().count() == 1, "{groups}");
    let types = said(&serve, &["du", "--by", "type"]);
    assert!(types.trim_end().ends_with("text/plain") && types.lines().count() == 1, "{types}");
    assert_eq!(said(&serve, &["du", "--host", "other.example"]), "");

    assert!(serve.purge("/a").starts_with("HTTP/1.1 200"));
    assert_eq!(said(&serve, &["ls"]).lines().count(), 2);

    let refused = Command::new(env!("CARGO_BIN_EXE_picaflor"))
        .args(["ls", &format!("http://{}", serve.admin), "--token", "not the one"])
        .output()
        .unwrap();
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("refused the token"));
    assert!(serve.admin("GET", "/objects?tag=one").0.starts_with("HTTP/1.1 400"));
    serve.stop();
}

#[test]
fn what_a_server_has_of_a_url_is_shown_as_it_is_stored() {
    let folder = tempfile::tempdir().unwrap();
    let origin = Origin::start(|head| {
        let language = if head.contains("language: de") { "eins" } else { "one" };
        match head.split(' ').nth(1).unwrap() {
            "/large" => ok("cache-control: max-age=900", &noise(300_000)),
            "/varies" => ok("cache-control: max-age=900\r\nvary: accept-language", language.as_bytes()),
            _ => ok("cache-control: max-age=900\r\nx-own: \"a\"", b"four"),
        }
    });
    let serve = Serve::start(folder.path(), origin.address, &["--capacity", "64MiB"]);
    for path in ["/a", "/large", "/varies"] {
        serve.get_until_hit(path, "");
    }
    serve.get_until_hit("/varies", "accept-language: de\r\n");
    let url = |path: &str| format!("http://{HOST}{path}");
    let get = |path: &str, more: &[&str]| run(&serve, &[&["get", &url(path)], more].concat());
    assert_eq!(get("/a", &[]).stdout, b"four");
    assert_eq!(get("/a", &["--range", "1-2"]).stdout, b"ou");
    let head = String::from_utf8(get("/a", &["--metadata"]).stdout).unwrap();
    assert!(head.starts_with("200 OK\n") && head.contains("\nx-own: \"a\"\n"), "{head}");
    assert!(get("/large", &[]).stdout == noise(300_000));
    assert!(get("/large", &["--range=-1000"]).stdout == noise(300_000)[299_000..]);
    let file = folder.path().join("large");
    assert!(get("/large", &["-o", file.to_str().unwrap()]).status.success());
    assert!(std::fs::read(file).unwrap() == noise(300_000));
    let variants: Vec<_> = ["1", "2"].iter().map(|n| get("/varies", &["--variant", n]).stdout).collect();
    assert!(variants.contains(&b"one".to_vec()) && variants.contains(&b"eins".to_vec()), "{variants:?}");

    assert!(serve.purge("/a").starts_with("HTTP/1.1 200"));
    for (path, more, why) in [
        ("/a", &[][..], "it is not stored"),
        ("/varies", &[], "2 responses are stored of it"),
        ("/varies", &["--variant", "3"], "2 of it stored"),
        ("/large", &["--range", "300000-"], "none of them in that range"),
        ("/large", &["--where"], "see `explain`"),
    ] {
        let done = get(path, more);
        let said = String::from_utf8(done.stderr).unwrap();
        assert!(!done.status.success() && done.stdout.is_empty() && said.contains(why), "{path} {more:?}: {said}");
    }
    serve.stop();
}
