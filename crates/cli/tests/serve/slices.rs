//! Large objects in slices, and `kill -9` between them.

use std::{fs, process::Command};

use crate::kit::{Origin, Serve, TOKEN, field, is_hit, noise, ok, reply};

const SLICE: usize = 1 << 20;

/// An origin of ranges of this body.
fn origin(body: &[u8], etag: &str) -> Origin {
    let (body, fields) = (body.to_vec(), format!("cache-control: max-age=31536000\netag: \"{etag}\""));
    Origin::start(move |head| {
        let Some((first, last)) = field(head, "range").strip_prefix("bytes=").and_then(|set| set.split_once('-'))
        else {
            return ok(&fields, &body);
        };
        let (first, last) = (first.parse::<usize>().unwrap(), last.parse::<usize>().unwrap().min(body.len() - 1));
        let fields = format!("{fields}\ncontent-range: bytes {first}-{last}/{}", body.len());
        reply("206 Partial Content", &fields, &body[first..=last])
    })
}

/// The ranges that it was asked for, sorted.
fn ranges(origin: &Origin) -> Vec<String> {
    let mut ranges: Vec<_> = origin.heads().iter().map(|head| field(head, "range").to_owned()).collect();
    ranges.sort();
    ranges
}

#[test]
fn slices_hold_after_a_kill_and_no_body_is_of_two_versions() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("c.toml"), "[[rule]]\nslice = \"1MiB\"\n").unwrap();
    let more = ["--config", "c.toml", "--capacity", "128MiB", "--durability", "every-put", "--log", "access.log"];
    let (old, new) = (noise(6 * SLICE + 77), noise(6 * SLICE + 78)[1..].to_vec());
    let first = origin(&old, "old");
    let serve = Serve::start(folder.path(), first.address, &more);
    for range in ["0-9", "3145728-3145737"] {
        assert_eq!(serve.curl("/iso", &["-r", range]).status.code(), Some(0));
        serve.settle();
    }
    serve.kill();
    let serve = Serve::start(folder.path(), first.address, &more);
    for range in ["5-9", "3145730-4194303"] {
        assert!(is_hit(&serve.ask("GET", "/iso", &format!("Range: bytes={range}\r\n")).0.to_lowercase()), "{range}");
    }
    assert_eq!(ranges(&first), ["bytes=0-1048575", "bytes=3145728-4194303"]);
    assert!(serve.curl("/iso", &[]).stdout == old);
    serve.settle();
    let asked = ranges(&first);
    assert_eq!((asked.len(), asked.iter().filter(|range| *range == "bytes=0-1048575").count()), (7, 1), "{asked:?}");
    let explain = Command::new(env!("CARGO_BIN_EXE_picaflor"))
        .args(["explain", "--token", TOKEN, "--admin", &format!("http://{}", serve.admin), "http://test.example/iso"])
        .output()
        .unwrap();
    let explained = String::from_utf8_lossy(&explain.stdout);
    assert!(explained.contains("7 of 1 MiB, 7 of them stored"), "{explain:?}");
    serve.kill();
    // Another origin, and another version, while some of the old one is stored.
    let second = origin(&new, "new");
    let serve = Serve::start(folder.path(), second.address, &more);
    assert!(serve.curl("/iso", &[]).stdout == old, "it is fresh, and whole");
    assert!(second.heads().is_empty());
    assert!(serve.purge("/iso").starts_with("HTTP/1.1 200"));
    assert!(serve.curl("/iso", &["-r", "2097152-"]).stdout == new[2_097_152..]);
    serve.settle();
    serve.kill();
    let serve = Serve::start(folder.path(), second.address, &more);
    assert!(serve.curl("/iso", &[]).stdout == new);
    serve.settle();
    assert_eq!(ranges(&second).len(), 7, "each slice once, in two lives: {:?}", ranges(&second));
    serve.stop();
    let log = fs::read_to_string(folder.path().join("access.log")).unwrap();
    assert!(log.lines().all(|line| line.contains("slices")), "{log}");
}

#[test]
fn a_kill_in_the_middle_of_a_slice_costs_that_slice() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("c.toml"), "[[rule]]\nslice = \"1MiB\"\n").unwrap();
    let more = ["--config", "c.toml", "--capacity", "128MiB", "--durability", "every-put"];
    let body = noise(4 * SLICE);
    let whole = body.clone();
    let (held, hold) = std::sync::mpsc::channel::<()>();
    let hold = std::sync::Mutex::new(hold);
    let first = Origin::start(move |head| {
        let fields =
            format!("cache-control: max-age=31536000\netag: \"e\"\ncontent-range: bytes RANGE/{}", whole.len());
        match field(head, "range") {
            "bytes=0-1048575" => reply("206 Partial Content", &fields.replace("RANGE", "0-1048575"), &whole[..SLICE]),
            // Half of it, as long as the test wants.
            _ => {
                let all =
                    reply("206 Partial Content", &fields.replace("RANGE", "1048576-2097151"), &whole[SLICE..2 * SLICE]);
                let _ = hold.lock().unwrap().recv();
                all[..all.len() / 2].to_vec()
            }
        }
    });
    let serve = Serve::start(folder.path(), first.address, &more);
    assert!(serve.curl("/iso", &["-r", "0-9"]).stdout == body[..10]);
    serve.settle();
    std::thread::scope(|scope| {
        scope.spawn(|| serve.curl("/iso", &["-r", "1048570-1048580"]));
        while first.heads_begun() < 2 {
            std::thread::yield_now();
        }
        held.send(()).unwrap();
        drop(held);
    });
    serve.kill();
    let second = origin(&body, "e");
    let serve = Serve::start(folder.path(), second.address, &more);
    assert!(serve.curl("/iso", &[]).stdout == body);
    assert_eq!(ranges(&second), ["bytes=1048576-2097151", "bytes=2097152-3145727", "bytes=3145728-4194303"]);
}
