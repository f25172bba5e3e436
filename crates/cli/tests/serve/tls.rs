//! TLS by flags, and new certificates by a signal.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    sync::{Arc, Mutex},
};

use crate::kit::eventually;

/// A certificate for `test.example` that is its own authority, and its key.
fn issue(file: &Path, key: &Path) {
    let made = rcgen::generate_simple_self_signed(vec!["test.example".to_owned()]).unwrap();
    std::fs::write(file, made.cert.pem()).unwrap();
    std::fs::write(key, made.signing_key.serialize_pem()).unwrap();
}

#[test]
fn a_signal_has_certificates_read_anew() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    issue(&at("a.pem"), &at("a.key"));
    let fixed = "serve -l 127.0.0.1:0 --admin 127.0.0.1:0 --capacity 64MiB --memory 32MiB --origin http://127.0.0.1:1 \
        --tls-listen 127.0.0.1:0 --tls-certificate a.pem --tls-key a.key";
    let mut child = Command::new(env!("CARGO_BIN_EXE_picaflor"))
        .current_dir(folder.path())
        .args(fixed.split_whitespace())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let said = Arc::new(Mutex::new(String::new()));
    let (hears, errors) = (said.clone(), BufReader::new(child.stderr.take().unwrap()));
    std::thread::spawn(move || errors.lines().map_while(Result::ok).for_each(|line| *hears.lock().unwrap() += &line));
    let listen = lines.find_map(|line| Some(line.strip_prefix("listen   ")?.strip_suffix(" by TLS")?.to_owned()));
    let port = listen.unwrap().rsplit(':').next().unwrap().to_owned();
    lines.find(|line| line.contains("Cache-Status")).unwrap();
    std::thread::spawn(move || lines.for_each(drop));
    let status = |trusted: &str| {
        let output = Command::new("curl")
            .current_dir(folder.path())
            .args(["-s", "--max-time", "20", "-o", "/dev/null", "-w", "%{http_code} %{http_version}", "--http2"])
            .args(["--resolve", &format!("test.example:{port}:127.0.0.1"), "--cacert", trusted])
            .arg(format!("https://test.example:{port}/"))
            .output()
            .expect("curl is installed");
        String::from_utf8(output.stdout).unwrap()
    };
    let hang_up =
        |child: u32| assert!(Command::new("kill").args(["-s", "HUP", &child.to_string()]).status().unwrap().success());
    assert_eq!(status("a.pem"), "502 2", "there is no origin");
    std::fs::copy(at("a.pem"), at("old.pem")).unwrap();
    issue(&at("b.pem"), &at("a.key"));
    hang_up(child.id());
    eventually("it says why not", || said.lock().unwrap().contains("a.key: not the key of the certificate in a.pem"));
    assert_eq!(status("old.pem"), "502 2", "nothing was changed");
    std::fs::copy(at("b.pem"), at("a.pem")).unwrap();
    hang_up(child.id());
    eventually("it says what was read", || said.lock().unwrap().contains("reload: 1 certificate read"));
    assert_eq!((&*status("b.pem"), &*status("old.pem")), ("502 2", "000 0"));
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn flags_that_are_not_of_each_other_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (flags, why) in [
        ("--tls-listen 127.0.0.1:0 --tls-certificate a --tls-certificate b --tls-key c", "--tls-key is given 1 times"),
        ("--tls-listen 127.0.0.1:0", "a [[tls.certificate]] is needed"),
        ("--tls-listen 127.0.0.1:0 --tls-certificate none.pem", "none.pem: No such file"),
        ("--origin https://127.0.0.1:1 --origin-ca none.pem", "none.pem: No such file"),
        ("--origin-insecure", "--origin"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_picaflor"))
            .current_dir(folder.path())
            .arg("serve")
            .args(flags.split_whitespace())
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && said.contains(why), "{flags}: {said}");
    }
}
