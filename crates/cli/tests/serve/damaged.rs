//! A large object whose bytes rot on the device while it is served: the origin sends the rest of it, or the client sees
//! that it has not all.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::Path,
    process::Output,
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::kit::{Origin, Serve, field, is_hit, noise, ok, reply};

const LEN: usize = 6 << 20;
/// Where the damage is: chunks before it are sent from the store.
const ROTTEN: usize = 3_000_000;

/// What the origin does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Now {
    /// As it should: ranges, by `If-Range`.
    Serves,
    /// Whatever is asked for, it sends all.
    SendsAll,
    /// It has another version.
    HasAnother,
    /// It sends a part of another version, though it was told not to.
    MixesUp,
    /// It hangs up in the middle of the part.
    HangsUp,
}

struct Scene {
    folder: tempfile::TempDir,
    origin: Origin,
    now: Arc<Mutex<Now>>,
    body: Arc<Vec<u8>>,
}

impl Scene {
    /// An origin whose responses have these fields.
    fn new(fields: &'static str) -> Self {
        let (now, body) = (Arc::new(Mutex::new(Now::Serves)), Arc::new(noise(LEN)));
        let (state, bytes) = (now.clone(), body.clone());
        let origin = Origin::start(move |head| {
            let now = *state.lock().unwrap();
            let other = fields.replace("v1", "v2");
            let range = field(head, "range").strip_prefix("bytes=").and_then(|range| range.split_once('-'));
            let Some((first, last)) = range else { return ok(fields, &bytes) };
            let (first, last) = (first.parse::<usize>().unwrap(), last.parse::<usize>().unwrap());
            let part = |fields: &str| {
                let fields = format!("{fields}\ncontent-range: bytes {first}-{last}/{LEN}");
                reply("206 Partial Content", &fields, &bytes[first..=last])
            };
            match now {
                Now::Serves if field(head, "if-range") == "\"v1\"" => part(fields),
                Now::Serves | Now::SendsAll => ok(fields, &bytes),
                Now::HasAnother => ok(&other, &noise(LEN - 1)),
                Now::MixesUp => part(&other),
                Now::HangsUp => {
                    let mut part = part(&format!("{fields}\nconnection: close"));
                    part.truncate(part.len() / 2);
                    part
                }
            }
        });
        Self { folder: tempfile::tempdir().unwrap(), origin, now, body }
    }

    /// Stores it, and starts anew: nothing of it is in memory. Then its bytes rot.
    fn rotten(&self, more: &[&str]) -> Serve {
        let arguments = [&["--capacity", "128MiB", "--durability", "every-put", "--log", "access.log"], more].concat();
        let start = || Serve::start(self.folder.path(), self.origin.address, &arguments);
        let serve = start();
        assert!(!is_hit(&serve.get("/large").0));
        serve.settle();
        serve.stop();
        let serve = start();
        rot(&self.folder.path().join("picaflor.store"), &self.body[ROTTEN..ROTTEN + 64]);
        serve
    }

    fn set(&self, now: Now) {
        *self.now.lock().unwrap() = now;
    }

    /// The newest line of the access log, once it has so many.
    fn logged(&self, lines: usize) -> String {
        let path = self.folder.path().join("access.log");
        for _ in 0..3000 {
            let text = fs::read_to_string(&path).unwrap_or_default();
            if text.lines().count() >= lines {
                return text.lines().last().unwrap().to_owned();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the access log never has {lines} lines");
    }
}

/// Inverts these bytes on the device, beneath the process that has it open.
fn rot(place: &Path, bytes: &[u8]) {
    let whole = fs::read(place).unwrap();
    let begins = whole.iter().enumerate().filter(|(_, byte)| **byte == bytes[0]).map(|(at, _)| at);
    let found: Vec<usize> = begins.filter(|at| whole[*at..].starts_with(bytes)).collect();
    assert!(!found.is_empty(), "it is on the device");
    let file = File::options().write(true).open(place).unwrap();
    let inverted: Vec<u8> = bytes.iter().map(|byte| !byte).collect();
    found.iter().for_each(|at| file.write_all_at(&inverted, *at as u64).unwrap());
    file.sync_all().unwrap();
}

const STRONG: &str = "cache-control: max-age=3600\netag: \"v1\"\naccept-ranges: bytes";

/// It failed in a way that no client takes for a whole body: 18 is a body that ended early, 56 a connection that did.
fn is_seen(output: &Output) -> bool {
    matches!(output.status.code(), Some(18 | 56)) && output.stdout.len() < LEN
}

#[test]
fn the_origin_sends_the_rest() {
    for now in [Now::Serves, Now::SendsAll] {
        let scene = Scene::new(STRONG);
        let serve = scene.rotten(&[]);
        scene.set(now);
        let got = serve.curl("/large", &[]);
        assert!(got.status.success() && got.stdout == *scene.body, "{:?}, {} bytes", got.status, got.stdout.len());
        let heads = scene.origin.heads();
        assert_eq!(heads.len(), 2, "{heads:?}");
        let first: usize =
            field(&heads[1], "range").strip_prefix("bytes=").unwrap().split('-').next().unwrap().parse().unwrap();
        assert!(first > 0 && first <= ROTTEN && field(&heads[1], "if-range") == "\"v1\"", "{heads:?}");
        assert!(field(&heads[1], "range").ends_with(&format!("-{}", LEN - 1)), "{heads:?}");
        let line = scene.logged(2);
        assert!(line.contains(&format!("\" 200 {LEN} \"")) && line.ends_with(":rest-from-origin"), "{line}");
        let said = serve.told("/large").unwrap();
        assert!(
            said.contains(&format!("broke off at byte {first} of {LEN}")) && said.contains("the origin sends the rest"),
            "{said}"
        );
        // What is damaged has left, and is stored anew.
        let again = serve.curl("/large", &[]);
        assert!(again.status.success() && again.stdout == *scene.body);
        serve.settle();
        assert!(is_hit(&serve.get("/large").0));
        assert_eq!(scene.origin.heads().len(), 3);
    }
}

#[test]
fn parts_of_it_are_finished_too() {
    let scene = Scene::new(STRONG);
    let serve = scene.rotten(&[]);
    let last = ROTTEN + 500_000;
    let got = serve.curl("/large", &["-r", &format!("100000-{last}")]);
    assert!(got.status.success() && got.stdout == scene.body[100_000..=last], "{got:?}");
    assert!(scene.logged(2).ends_with(":rest-from-origin"));
    // Of several parts the one that broke off is finished, and those behind it come.
    let scene = Scene::new(STRONG);
    let serve = scene.rotten(&[]);
    let got = serve.curl("/large", &["-r", &format!("100-199,100000-{last},-50")]);
    assert!(got.status.success(), "{:?}", got.status);
    for part in [&scene.body[100..200], &scene.body[100_000..=last], &scene.body[LEN - 50..]] {
        assert!(got.stdout.windows(part.len()).any(|bytes| bytes == part), "{} bytes", part.len());
    }
}

#[test]
fn what_cannot_be_finished_is_seen_to_be_cut() {
    const WEAK: &str = "cache-control: max-age=3600\netag: W/\"v1\"";
    const NONE: &str = "cache-control: max-age=3600";
    let cases = [
        (STRONG, None, "cut-origin-failed", "the origin does not answer"),
        (STRONG, Some(Now::HasAnother), "cut-origin-changed", "the origin has another version"),
        (STRONG, Some(Now::MixesUp), "cut-origin-changed", "the origin has another version"),
        (STRONG, Some(Now::HangsUp), "cut-origin-failed", "the origin broke off, too"),
        (WEAK, Some(Now::Serves), "cut-no-validator", "it has no strong validator"),
        (NONE, Some(Now::Serves), "cut-no-validator", "it has no strong validator"),
        (STRONG, Some(Now::Serves), "cut-only-if-cached", "the client wants nothing of the origin"),
    ];
    for (fields, now, reason, words) in cases {
        let mut scene = Scene::new(fields);
        let serve = scene.rotten(&[]);
        match now {
            Some(now) => scene.set(now),
            None => scene.origin.end(),
        }
        let only = ["-H", "Cache-Control: only-if-cached"];
        let got = serve.curl("/large", if reason == "cut-only-if-cached" { &only } else { &[] });
        assert!(is_seen(&got), "{reason}: {:?}, {} bytes", got.status, got.stdout.len());
        assert_eq!(got.stdout, scene.body[..got.stdout.len()], "{reason}: no byte of anything else");
        let line = scene.logged(2);
        assert!(line.contains("\" 200 ") && line.ends_with(&format!(":{reason}")), "{line}");
        let said = serve.told(words).unwrap();
        assert!(said.contains("/large") && said.contains("the connection is closed"), "{said}");
        let stats: serde_json::Value = serde_json::from_str(&serve.admin("GET", "/stats").1).unwrap();
        assert_eq!(stats["proxy"]["bodies_broken"][reason], 1, "{stats}");
    }
}

#[test]
fn every_form_of_the_log_says_so() {
    for (form, finished, cut) in [
        ("squid", "HIT/200 ", "HIT_ABORTED/200 "),
        ("json", "\"ending\":\"rest-from-origin\"", "\"ending\":\"cut-origin-failed\""),
    ] {
        for words in [finished, cut] {
            let mut scene = Scene::new(STRONG);
            let serve = scene.rotten(&["--log-format", form]);
            if words == cut {
                scene.origin.end();
            }
            assert_eq!(serve.curl("/large", &[]).status.success(), words == finished);
            let line = scene.logged(2);
            assert!(line.contains(words) && line.contains("HIER_DIRECT") == (words == "HIT/200 "), "{line}");
        }
    }
}
