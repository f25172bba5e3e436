//! A store that stops writing while it serves: no request fails, and nothing invalid is served.

use std::{
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    time::Duration,
};

use crate::kit::{Origin, Serve, is_hit, ok};

/// Answers GET with the version that POST has made, and `len` bytes more.
fn origin(len: usize) -> Origin {
    let version = AtomicUsize::new(0);
    Origin::start(move |head| {
        let is_post = head.starts_with("post");
        let version = version.fetch_add(usize::from(is_post), SeqCst);
        let body = if is_post { String::new() } else { format!("{version} {}", "x".repeat(len)) };
        ok("cache-control: max-age=600", body.as_bytes())
    })
}

#[test]
fn what_is_invalid_is_not_served_though_the_store_cannot_delete_it() {
    let folder = tempfile::tempdir().unwrap();
    // Blank, and as long as it is to be; but no more than a few megabytes of it can be written.
    std::fs::File::create(folder.path().join("picaflor.store")).unwrap().set_len(64 << 20).unwrap();
    let first = "trap '' XFSZ; ulimit -f 8192;";
    let origin = origin(300_000);
    let serve = Serve::start_after(first, folder.path(), origin.address, &["--capacity", "64MiB"]);
    let get = |path: &str| {
        let (head, body) = serve.get(path);
        (head, body.split(' ').next().unwrap_or_default().to_owned())
    };
    for path in ["/posted", "/purged", "/kept"] {
        serve.get_until_hit(path, "");
    }
    let mut n = 0;
    while !serve.has_told("takes no more writes") {
        n += 1;
        assert!(n < 2000, "it never stops writing, or never says so");
        let (head, version) = get(&format!("/{n}"));
        assert!(head.starts_with("HTTP/1.1 200") && version == "0", "{head}");
        std::thread::sleep(Duration::from_millis(if n > 100 { 50 } else { 0 }));
    }
    let kept: Vec<bool> = ["/posted", "/purged", "/kept"].iter().map(|path| is_hit(&get(path).0)).collect();
    assert_eq!(kept, [true; 3], "what it has is served");
    assert!(!get("/never-stored").0.contains("; stored"));
    assert!(serve.ask("POST", "/posted", "Content-Length: 0\r\n").0.starts_with("HTTP/1.1 200"));
    for _ in 0..2 {
        let answer = get("/posted");
        assert!(!is_hit(&answer.0) && answer.1 == "1", "{answer:?}");
    }
    let head = serve.purge("/purged");
    assert!(head.starts_with("HTTP/1.1 500"), "{head}");
    let answer = get("/purged");
    assert!(!is_hit(&answer.0) && answer.1 == "1", "{answer:?}");
    assert!(is_hit(&get("/kept").0));
}
