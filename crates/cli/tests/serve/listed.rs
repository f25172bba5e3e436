//! `picaflor ls` and `picaflor du` of a running server.

use std::process::{Command, Output};

use crate::kit::{Origin, Serve, TOKEN, ok};

fn run(serve: &Serve, arguments: &[&str]) -> Output {
    let (name, rest) = arguments.split_first().unwrap();
    let admin = format!("http://{}", serve.admin);
    let place = if *name == "ls" { vec![&*admin] } else { vec!["--admin", &admin] };
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
        let fields = "cache-control: max-age=900\r\ncontent-type: text/plain; charset=utf-8\r\nsurrogate-key: one two";
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
