//! `picaflor top` beside a running server: in plain lines, in a terminal, and where there is nothing to look at.

use std::{
    io::{Read, Write},
    process::{Command, Output, Stdio},
};

use crate::kit::{Origin, Serve, TOKEN, ok};

const PICAFLOR: &str = env!("CARGO_BIN_EXE_picaflor");

fn top(arguments: &[&str]) -> Output {
    Command::new(PICAFLOR).arg("top").args(arguments).env_remove("PICAFLOR_TOKEN").output().unwrap()
}

fn served() -> (tempfile::TempDir, Origin, Serve) {
    let (folder, origin) = (tempfile::tempdir().unwrap(), Origin::start(|_| ok("cache-control: max-age=900", b"body")));
    let serve = Serve::start(folder.path(), origin.address, &["--capacity", "64MiB"]);
    (folder, origin, serve)
}

#[test]
fn one_look_is_plain_lines() {
    let (_folder, _origin, serve) = served();
    assert!(serve.admin("POST", "/purge?tag=t").0.starts_with("HTTP/1.1 200"));
    let admin = format!("http://{}", serve.admin);
    let looking = Command::new(PICAFLOR)
        .args(["top", "--once", "--interval", "2s", "--admin", &admin, "--token", TOKEN])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // Some of these are between the two looks.
    let mut looking = looking;
    let mut asked = 0;
    while looking.try_wait().unwrap().is_none() {
        serve.get("/page");
        asked += 1;
    }
    let mut text = String::new();
    looking.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(asked > 2, "{asked}");
    let line =
        |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {text}"));
    assert!(line("picaflor ").contains(&admin));
    assert!(!line("requests ").contains(" 0/s") && line("requests ").contains("connections"), "{text}");
    assert!(line("hit ratio").contains("% of requests, "), "{text}");
    assert!(line("outcomes").contains("hit-fast"), "{text}");
    assert!(line("origins").contains("0 failures/s, http://"), "{text}");
    assert!(line("memory").contains(" of ") && line("store").contains(" live ("), "{text}");
    assert!(line("purges").contains("noted of 4,096"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text}");
}

#[test]
fn in_a_terminal_it_goes_on_until_it_is_told() {
    let (_folder, _origin, serve) = served();
    let command = format!("{PICAFLOR} top --interval 100ms --admin http://{} --token {TOKEN}", serve.admin);
    let mut child = Command::new("script")
        .args(["-q", "-e", "-f", "-c", &command, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut out, mut seen, mut chunk) = (child.stdout.take().unwrap(), String::new(), [0; 4096]);
    while seen.matches("purges  ").count() < 3 {
        let n = out.read(&mut chunk).unwrap();
        assert!(n > 0, "{seen}");
        seen += &String::from_utf8_lossy(&chunk[..n]);
    }
    child.stdin.as_mut().unwrap().write_all(b"q").unwrap();
    out.read_to_string(&mut seen).unwrap();
    assert!(child.wait().unwrap().success(), "{seen}");
    assert!(seen.contains("\u{1b}[?1049h") && seen.contains("\u{1b}[?1049l"), "it gives the screen back: {seen}");
}

#[test]
fn what_is_not_there_is_told() {
    let (folder, _origin, serve) = served();
    let admin = format!("http://{}", serve.admin);
    let nowhere = folder.path().join("no-token");
    for (arguments, code, words) in [
        (&["--once", "--admin", "http://127.0.0.1:1", "--token", TOKEN][..], 1, "is `picaflor serve` running"),
        (&["--once", "--admin", &admin, "--token", "wrong"], 1, "it refused the token that was given"),
        (&["--once", "--admin", &admin, "--token-file", nowhere.to_str().unwrap()], 1, "reading the token file"),
        (&["--once", "--admin", "https://a/", "--token", TOKEN], 2, "expected http://IP:PORT"),
        (&["--admin", &admin, "--token", TOKEN], 2, "say --once"),
        (&["--once", "--interval", "1ms", "--admin", &admin, "--token", TOKEN], 2, "at least 100ms"),
    ] {
        let output = top(arguments);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
        assert!(text.contains(words), "{arguments:?}: {text}");
    }
}

#[test]
fn a_url_is_explained() {
    let origin = Origin::start(|head| match head.split(' ').nth(1) {
        Some("/private") => ok("cache-control: private", b"body"),
        Some("/vary") => ok("cache-control: max-age=900\nvary: accept-language", b"body"),
        _ => ok("cache-control: max-age=900\ncache-tag: t\ncontent-type: text/css\netag: \"1\"", b"body"),
    });
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path(), origin.address, &["--capacity", "64MiB"]);
    let admin = format!("http://{}", serve.admin);
    let explain = |path: &str| {
        let output = Command::new(PICAFLOR)
            .args(["explain", "--admin", &admin, "--token", TOKEN, &format!("http://test.example{path}")])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    for path in ["/a?x&y=%20", "/vary", "/private"] {
        serve.get(path);
    }
    serve.settle();
    let text = explain("/a?x&y=%20");
    for words in
        ["origin://test.example/a?x&y=%20\n", " fresh\n", "200 text/css, 4 B", "(in 14m ", "room is wanted", "lies "]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(explain("/vary").contains("accept-language"), "{}", explain("/vary"));
    assert!(explain("/private").contains("of late: recently-private"), "{}", explain("/private"));
    assert!(explain("/none").contains("it was not asked for, or has left"));
    let bad = Command::new(PICAFLOR).args(["explain", "page", "--token", TOKEN]).output().unwrap();
    assert_eq!(bad.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&bad.stderr).contains("not a URL like http://host/path"));
}
