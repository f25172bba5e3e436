//! The real binary: what it prints, its exit codes, its signals.
#![allow(clippy::unwrap_used)] // a test that cannot go on fails

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

fn picaflor(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_picaflor"));
    command.current_dir(folder).args(arguments);
    command
}

fn output(folder: &Path, arguments: &[&str]) -> Output {
    picaflor(folder, arguments).output().unwrap()
}

#[test]
fn check_config_prints_what_a_file_comes_to() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.toml"), "workers = 3\n[store]\ncapacity = \"1GiB\"\n").unwrap();
    let done = output(folder.path(), &["check-config", "a.toml"]);
    let text = String::from_utf8(done.stdout).unwrap();
    assert_eq!(done.status.code(), Some(0));
    assert!(text.contains("workers = 3") && text.contains("capacity = \"1GiB\"") && text.contains("drain = \"20s\""));
    std::fs::write(folder.path().join("b.toml"), &text).unwrap();
    assert_eq!(output(folder.path(), &["check-config", "b.toml"]).stdout, text.as_bytes(), "its output is a file");
}

/// Sizes and places of the page are those of a server, here those of a test.
#[test]
fn the_page_on_moving_has_configurations_that_count() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["site".to_owned()]).unwrap();
    std::fs::write(folder.path().join("site.pem"), made.cert.pem()).unwrap();
    std::fs::write(folder.path().join("site.key"), made.signing_key.serialize_pem()).unwrap();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/MIGRATION.md");
    let page = std::fs::read_to_string(page).unwrap();
    let there = [("100 GiB", "256 MiB"), ("100 GB", "256 MiB"), ("50 GiB", "256 MiB"), ("4 GiB", "64 MiB")];
    let there = there.into_iter().chain([("/var/lib/picaflor/", ""), ("/dev/", ""), ("/etc/ssl/", "")]);
    let page = there.fold(page, |page, (said, here)| page.replace(said, here));
    let blocks = page.split("```toml\n").skip(1).filter_map(|rest| rest.split_once("\n```"));
    for (number, (toml, _)) in blocks.clone().enumerate() {
        std::fs::write(folder.path().join("a.toml"), toml).unwrap();
        let done = output(folder.path(), &["check-config", "a.toml"]);
        assert!(done.status.success(), "{number}: {}", String::from_utf8_lossy(&done.stderr));
    }
    assert_eq!(blocks.count(), 4);
}

/// Each behind nothing, and all of them behind one another with what the page has.
#[test]
fn the_files_for_mirrors_and_their_page_are_configurations() {
    let (folder, root) = (tempfile::tempdir().unwrap(), Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    let page = std::fs::read_to_string(root.join("docs/MIRRORS.md")).unwrap();
    let blocks = page.split("```toml\n").skip(1).filter_map(|rest| rest.split_once("\n```"));
    let mut texts: Vec<_> = blocks.map(|(toml, _)| format!("{toml}\n")).collect();
    assert_eq!(texts.len(), 1);
    for name in ["apt", "pip", "npm", "cargo", "go", "oci"] {
        texts.push(std::fs::read_to_string(root.join(format!("packaging/mirrors/{name}.toml"))).unwrap());
        assert!(page.contains(&format!("`{name}.toml`")), "the page has {name}");
    }
    assert_eq!(std::fs::read_dir(root.join("packaging/mirrors")).unwrap().count(), texts.len() - 1);
    texts.push(texts.concat());
    for text in texts {
        std::fs::write(folder.path().join("a.toml"), format!("[store]\ncapacity = \"256 MiB\"\n{text}")).unwrap();
        let done = output(folder.path(), &["check-config", "a.toml"]);
        assert!(done.status.success(), "{}{text}", String::from_utf8_lossy(&done.stderr));
    }
}

#[test]
fn check_config_names_the_line_and_the_key() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.toml"), "# mine\n[limits]\nidle_timout = \"5s\"\n").unwrap();
    let done = output(folder.path(), &["check-config", "a.toml"]);
    assert_eq!(done.status.code(), Some(2));
    let text = String::from_utf8(done.stderr).unwrap();
    assert_eq!(text, "picaflor: a.toml:3: unknown key `idle_timout`; did you mean `idle_timeout`?\n");
    assert_eq!(output(folder.path(), &["check-config", "none.toml"]).status.code(), Some(2));
    assert_eq!(output(folder.path(), &["serve", "--origin", "ftp://x"]).status.code(), Some(2));
}

#[test]
fn check_config_refuses_what_serve_would_and_neither_leaves_a_store() {
    let folder = tempfile::tempdir().unwrap();
    let file = |text: &str| std::fs::write(folder.path().join("a.toml"), text).unwrap();
    let addresses = "listen = [\"127.0.0.1:0\"]\n[admin]\nlisten = \"127.0.0.1:0\"\n[store]\n";
    for (text, place, mend) in [
        ("capacity = \"1MiB\"", "a.toml:5: store.capacity: ", "are the least for clusters of"),
        ("capacity = \"8000000TiB\"", "a.toml:5: store.capacity: ", "give less, or another place with store.path"),
        ("memory = \"1MiB\"\ncapacity = \"64MiB\"", "a.toml:5: store.memory: ", "the least for clusters of"),
        ("capacity = \"64MiB\"\npath = \"none/a\"", "a.toml:6: store.path: ", "name a folder that exists"),
        ("capacity = \"64MiB\"\npreset = \"squit\"", "a.toml:6: store.preset: ", "there are: picaflor"),
    ] {
        file(&format!("{addresses}{text}\n"));
        for arguments in [&["check-config", "a.toml"][..], &["serve", "--config", "a.toml"]] {
            let done = output(folder.path(), arguments);
            let said = String::from_utf8(done.stderr).unwrap();
            assert_eq!(done.status.code(), Some(2), "{text}: {said}");
            assert!(said.contains(place) && said.contains(mend), "{text}: {said}");
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "{text}: nothing but the configuration");
    }
    // Beside a store that is there it says what opening that would say, and beside one in use nothing.
    let mut serve = serve_as(folder.path(), &["--capacity", "64MiB"]);
    file("[store]\ncapacity = \"1GiB\"\n");
    signal(&serve.child, "TERM");
    serve.child.wait().unwrap();
    let done = output(folder.path(), &["check-config", "a.toml"]);
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(done.status.code() == Some(2) && said.contains("a.toml:2: store.capacity: "), "{said}");
    assert!(said.contains("67108864 bytes, and 1073741824 are given"), "{said}");
    file("[store]\npreset = \"stream\"\n");
    let done = output(folder.path(), &["check-config", "a.toml"]);
    let said = String::from_utf8(done.stderr).unwrap();
    let mend = "open it without a preset, or with picaflor";
    assert!(said.contains("a.toml:2: store.preset: ") && said.contains(mend), "{said}");
}

#[test]
fn a_start_that_fails_leaves_no_store_that_the_next_one_trips_over() {
    let folder = tempfile::tempdir().unwrap();
    let there = || folder.path().join("picaflor.store").exists();
    let arguments =
        ["serve", "-l", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--memory", "64MiB", "--capacity", "64MiB"];
    // The token cannot be kept.
    std::fs::write(folder.path().join("a.toml"), "[admin]\ntoken_file = \"no/such/folder/token\"\n").unwrap();
    let done = output(folder.path(), &[&arguments[..], &["--config", "a.toml"]].concat());
    assert_eq!((done.status.code(), there()), (Some(1), false), "{}", String::from_utf8_lossy(&done.stderr));
    // No more than a few blocks may be written; the system says so with an error where the signal is ignored.
    let limited =
        format!("trap '' XFSZ; ulimit -f 2048; exec {} {}", env!("CARGO_BIN_EXE_picaflor"), arguments.join(" "));
    let done = Command::new("sh").current_dir(folder.path()).args(["-c", &limited]).output().unwrap();
    assert!(!done.status.success() && !there(), "{}", String::from_utf8_lossy(&done.stderr));
    let put =
        format!("trap '' XFSZ; ulimit -f 2048; echo x | {} put b.store key --create", env!("CARGO_BIN_EXE_picaflor"));
    let done = Command::new("sh").current_dir(folder.path()).args(["-c", &put]).output().unwrap();
    assert!(!done.status.success() && !folder.path().join("b.store").exists(), "{done:?}");
    let mut serve = serve_as(folder.path(), &["--capacity", "128MiB"]);
    assert!(serve.printed.contains("picaflor.store, 128MiB"), "{}", serve.printed);
    signal(&serve.child, "TERM");
    assert_eq!(serve.child.wait().unwrap().code(), Some(0));
}

#[test]
fn help_teaches() {
    let folder = tempfile::tempdir().unwrap();
    let text = String::from_utf8(output(folder.path(), &["serve", "--help"]).stdout).unwrap();
    for word in ["Examples:", "curl -x", "--origin", "Signals:", "USR1", "HUP"] {
        assert!(text.contains(word), "{word}");
    }
}

/// A running `serve`, and the addresses that it printed.
struct Serve {
    child: Child,
    listen: String,
    printed: String,
}

fn serve(folder: &Path) -> Serve {
    serve_with(folder, &[])
}

fn serve_with(folder: &Path, more: &[&str]) -> Serve {
    serve_as(folder, &[&["--capacity", "256MiB"], more].concat())
}

fn serve_as(folder: &Path, more: &[&str]) -> Serve {
    let sizes = ["--memory", "64MiB", "--workers", "1"];
    let arguments = [&["serve", "-l", "127.0.0.1:0", "--admin", "127.0.0.1:0"], &sizes[..], more].concat();
    let mut child = picaflor(folder, &arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (mut listen, mut printed) = (String::new(), String::new());
    for line in &mut lines {
        let line = line.unwrap();
        if let Some(address) = line.strip_prefix("listen   ") {
            listen = address.to_owned();
        }
        printed.push_str(&line);
        printed.push('\n');
        if line.contains("Cache-Status") {
            break;
        }
    }
    std::thread::spawn(move || lines.for_each(drop));
    Serve { child, listen, printed }
}

fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args(["-s", name, &child.id().to_string()]).status().unwrap().success());
}

#[test]
fn serve_says_what_a_crash_costs() {
    let nothing = "and undoes no invalidation and no purge";
    for (more, cost, undone) in [
        (&[][..], "a crash costs at most the last 1s", "undoes invalidations of at most the last 1s, and no purge"),
        (&["--durability", "none"], "a crash may cost whatever was put since", "of at most the last 1s, and no purge"),
        (&["--durability", "5min"], "a crash costs at most the last 5min", "of at most the last 5min, and no purge"),
        (&["--durability", "every-put"], "a crash costs nothing: every put is durable", nothing),
        (&["--durability", "every-put", "--delete-durability", "2s"], "a crash costs nothing", "the last 2s, and no"),
        (&["--delete-durability", "every-delete"], "a crash costs at most the last 1s", nothing),
        (&["--preset", "pmflf-ts"], "a crash costs nothing: every put is durable", nothing),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let mut serve = serve_with(folder.path(), more);
        assert!(serve.printed.contains(cost) && serve.printed.contains(undone), "{more:?}:\n{}", serve.printed);
        signal(&serve.child, "TERM");
        assert_eq!(serve.child.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn serve_says_what_it_chose_and_stops_on_term() {
    let folder = tempfile::tempdir().unwrap();
    let mut serve = serve(folder.path());
    for word in [
        "store    picaflor.store, 256MiB, memory 64MiB",
        "receipt  ",
        "forward  for 127.0.0.0/8",
        "admin    127.0.0.1:",
    ] {
        assert!(serve.printed.contains(word), "{word} in\n{}", serve.printed);
    }
    let mut client = TcpStream::connect(&serve.listen).unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut reply = String::new();
    client.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 421") && reply.contains("no-origin"), "{reply}");
    signal(&serve.child, "HUP");
    signal(&serve.child, "USR1");
    std::thread::sleep(Duration::from_millis(100));
    assert!(serve.child.try_wait().unwrap().is_none(), "neither ends it");
    signal(&serve.child, "TERM");
    assert_eq!(serve.child.wait().unwrap().code(), Some(0));
    let mut again = self::serve(folder.path());
    assert!(again.printed.contains("closed cleanly"), "{}", again.printed);
    signal(&again.child, "TERM");
    again.child.wait().unwrap();
}

#[test]
fn serve_gives_a_store_the_bytes_that_are_asked_for_and_else_keeps_it_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    for (capacity, has) in [
        (Some("64MiB"), "64MiB"),
        (None, "64MiB"),
        (Some("512MiB"), "512MiB"),
        (Some("256MiB"), "256MiB"),
        (None, "256MiB"),
    ] {
        let mut serve = serve_as(folder.path(), &capacity.map_or(vec![], |capacity| vec!["--capacity", capacity]));
        assert!(serve.printed.contains(&format!("picaflor.store, {has}, memory")), "{capacity:?}\n{}", serve.printed);
        signal(&serve.child, "TERM");
        assert_eq!(serve.child.wait().unwrap().code(), Some(0));
    }
    for (capacity, part) in [
        ("1MiB", "4718592 are the least for clusters of 262144"),
        ("1GiB", "it may grow to 8 times the 67108864 that it was made with"),
    ] {
        let taken = ["serve", "-l", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--capacity", capacity];
        let refused = output(folder.path(), &taken);
        let said = String::from_utf8(refused.stderr).unwrap();
        assert!(!refused.status.success() && said.contains(part), "{said}");
    }
    assert_eq!(std::fs::metadata(folder.path().join("picaflor.store")).unwrap().len(), 256 << 20);
}

#[test]
fn an_address_in_use_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = serve(folder.path());
    let other = tempfile::tempdir().unwrap();
    let done = output(other.path(), &["serve", "-l", &first.listen, "--capacity", "256MiB", "--memory", "64MiB"]);
    assert_eq!(done.status.code(), Some(1));
    let text = String::from_utf8(done.stderr).unwrap();
    assert!(text.contains(&format!("cannot listen on {}", first.listen)), "{text}");
    assert!(text.contains("stop the program that has it, or listen on another port"), "{text}");
    signal(&first.child, "INT");
    assert_eq!(first.child.wait().unwrap().code(), Some(0));
}
