//! What was purged or made invalid, and acknowledged, stays away through `kill -9`.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use crate::kit::{Origin, Serve, is_hit, noise, ok};

/// Answers GET of a path with a body that begins with how often anything was asked for, for a year; of
/// `/large…` with megabytes of it; of `/vary…` by language.
fn origin() -> Origin {
    let asked = Arc::<AtomicUsize>::default();
    let rest = noise(3 << 20);
    Origin::start(move |head| {
        let body = format!("{} ", asked.fetch_add(1, SeqCst)).into_bytes();
        let path = head.split(' ').nth(1).unwrap_or_default();
        let vary = if path.starts_with("/vary") { "\nvary: accept-language" } else { "" };
        let tag = if path == "/kept" { "keep" } else { "go" };
        let fields = format!("cache-control: max-age=31536000{vary}\ncache-tag: {tag}");
        let len = if path.starts_with("/large") { rest.len() } else { 1000 };
        ok(&fields, &[&body, &rest[..len]].concat())
    })
}

const PATHS: [(&str, &str); 5] = [
    ("/small", ""),
    ("/large", ""),
    ("/vary", "Accept-Language: de\r\n"),
    ("/vary", "Accept-Language: es\r\n"),
    ("/kept", ""),
];

fn hits(serve: &Serve) -> [bool; 5] {
    PATHS.map(|(path, fields)| is_hit(&serve.ask("GET", path, fields).0))
}

/// Stores them all, durably, and starts again with these arguments.
fn stored(folder: &Path, origin: &Origin, more: &[&str]) -> Serve {
    let serve = Serve::start(folder, origin.address, more);
    for (path, fields) in PATHS {
        serve.get_until_hit(path, fields);
    }
    serve.settle();
    serve.stop();
    Serve::start(folder, origin.address, more)
}

fn purged_and_killed(more: &[&str]) {
    let (folder, origin) = (tempfile::tempdir().unwrap(), origin());
    let serve = stored(folder.path(), &origin, more);
    assert_eq!(hits(&serve), [true; 5], "{more:?}");
    for path in ["/small", "/large", "/vary"] {
        let head = serve.purge(path);
        assert!(head.starts_with("HTTP/1.1 200"), "{more:?}: {head}");
    }
    serve.kill();
    let serve = Serve::start(folder.path(), origin.address, more);
    assert_eq!(hits(&serve), [false, false, false, false, true], "hits after the crash, {more:?}");
}

#[test]
fn what_is_purged_stays_away_whatever_a_crash_may_cost() {
    for durability in ["none", "1h", "every-put"] {
        purged_and_killed(&["--capacity", "128MiB", "--durability", durability]);
    }
}

#[test]
fn what_is_purged_stays_away_in_every_preset() {
    for preset in picaflor_literature::presets() {
        purged_and_killed(&["--capacity", "128MiB", "--durability", "none", "--preset", preset]);
    }
}

#[test]
fn purges_of_every_kind_hold_after_a_kill_and_so_does_everything_else() {
    for purge in [
        "tag=go",
        "pattern=*/small",
        "prefix=http://test.example/l",
        "soft=1&tag=go",
        "host=test.example",
        "host=other.example",
        "all=1",
    ] {
        let (folder, origin) = (tempfile::tempdir().unwrap(), origin());
        let more = ["--capacity", "128MiB", "--durability", "none"];
        let serve = stored(folder.path(), &origin, &more);
        assert_eq!(hits(&serve), [true; 5], "{purge}");
        let (head, body) = serve.admin("POST", &format!("/purge?{purge}"));
        assert!(head.starts_with("HTTP/1.1 200"), "{purge}: {head}{body}");
        serve.kill();
        let serve = Serve::start(folder.path(), origin.address, &more);
        let expected = match purge {
            "pattern=*/small" => [false, true, true, true, true],
            "prefix=http://test.example/l" => [true, false, true, true, true],
            "host=other.example" => [true; 5],
            "host=test.example" | "all=1" => [false; 5],
            _ => [false, false, false, false, true],
        };
        assert_eq!(hits(&serve), expected, "{purge}");
        // What is fetched after it is not purged by it, also in the next life.
        serve.settle();
        serve.stop();
        let serve = Serve::start(folder.path(), origin.address, &more);
        assert_eq!(hits(&serve), [true; 5], "{purge}");
    }
}

#[test]
fn a_purge_that_meets_a_fetch_holds_after_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Arc::new((std::sync::Mutex::new(false), std::sync::Condvar::new()));
    let opened = gate.clone();
    let origin = Origin::start(move |_| {
        let (is_open, more) = &*opened;
        drop(more.wait_while(is_open.lock().unwrap(), |is_open| !*is_open).unwrap());
        ok("cache-control: max-age=31536000", b"body")
    });
    let more = ["--capacity", "128MiB", "--durability", "every-put"];
    let serve = Serve::start(folder.path(), origin.address, &more);
    std::thread::scope(|scope| {
        let fetch = scope.spawn(|| serve.get("/small"));
        while origin.heads_begun() == 0 {
            std::thread::yield_now();
        }
        assert!(serve.purge("/small").starts_with("HTTP/1.1 200"));
        *gate.0.lock().unwrap() = true;
        gate.1.notify_all();
        assert!(fetch.join().unwrap().0.starts_with("HTTP/1.1 200"));
    });
    serve.kill();
    let serve = Serve::start(folder.path(), origin.address, &more);
    assert!(!is_hit(&serve.get("/small").0));
    serve.settle();
    assert!(is_hit(&serve.get("/small").0));
}

#[test]
fn what_a_post_made_invalid_is_as_durable_as_a_put() {
    let (folder, origin) = (tempfile::tempdir().unwrap(), origin());
    let more = ["--capacity", "128MiB", "--durability", "every-put"];
    let serve = stored(folder.path(), &origin, &more);
    for path in ["/small", "/large", "/vary"] {
        let (head, _) = serve.ask("POST", path, "Content-Length: 0\r\n");
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    }
    serve.kill();
    let serve = Serve::start(folder.path(), origin.address, &more);
    assert_eq!(hits(&serve), [false, false, false, false, true], "hits after the crash");
}

#[test]
fn purges_hold_before_while_and_after_their_notes_are_swept_away() {
    let origin = Origin::start(|head| {
        let n: usize = head.split(['/', ' ']).find_map(|word| word.parse().ok()).unwrap_or(0);
        ok(&format!("cache-control: max-age=31536000\ncache-tag: t{},all", n % 2), &noise(2000 + n))
    });
    let folder = tempfile::tempdir().unwrap();
    let more = ["--capacity", "64MiB", "--durability", "none"];
    let paths: Vec<String> = (0..300).map(|n| format!("/{n}")).collect();
    for (soft, until) in
        ["", "&soft=1"].into_iter().flat_map(|soft| ["", "passes", "noted", "pinned"].map(|until| (soft, until)))
    {
        let serve = Serve::start(folder.path(), origin.address, &more);
        paths.iter().for_each(|path| drop(serve.get(path)));
        serve.settle();
        serve.stop();
        let serve = Serve::start(folder.path(), origin.address, &more);
        assert!(serve.admin("POST", &format!("/purge?tag=t1{soft}")).0.starts_with("HTTP/1.1 200"));
        // Until something was taken out, the notes have ended, or are not even pinned.
        let number = |name: &str| {
            let (_, stats) = serve.admin("GET", "/stats");
            serde_json::from_str::<serde_json::Value>(&stats).unwrap()["purges"][name].as_u64().unwrap()
        };
        while match until {
            "" => false,
            "passes" => number("swept") + number("made_stale") == 0,
            still => number(still) > 0,
        } {
            std::thread::yield_now();
        }
        serve.kill();
        let serve = Serve::start(folder.path(), origin.address, &more);
        for (n, path) in paths.iter().enumerate() {
            assert_eq!(is_hit(&serve.get(path).0), n % 2 == 0, "{path}, killed when {until:?}, {soft:?}");
        }
        serve.stop();
    }
}
