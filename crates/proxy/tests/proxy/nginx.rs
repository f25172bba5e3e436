//! A real nginx as origin, a real curl as client: every body is compared with the file.

use std::{
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;

use crate::kit::{Proxy, eventually};

pub(crate) struct Nginx {
    child: Child,
    pub(crate) address: SocketAddr,
    folder: TempDir,
}

impl Nginx {
    pub(crate) fn start(locations: &str) -> Self {
        Self::start_by("reuseport", locations)
    }

    /// With more of its `listen`, such as `ssl`.
    pub(crate) fn start_by(listen: &str, locations: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Held, but not listened at, until nginx has it too: no other process gets the port in between.
        let held = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        held.set_reuse_port(true).unwrap();
        held.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        let address = held.local_addr().unwrap().as_socket().unwrap();
        let place = folder.path().display();
        std::fs::create_dir(folder.path().join("www")).unwrap();
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|kind| format!("{kind}_temp_path {place}/{kind};\n"))
            .collect();
        let text = format!(
            "daemon off; pid {place}/pid; error_log {place}/error.log; worker_processes 1;\n\
             events {{}}\nhttp {{ access_log {place}/access.log; {temporary}\n\
             server {{ listen {address} {listen}; root {place}/www; gzip_types *; {locations} }} }}\n"
        );
        std::fs::write(folder.path().join("nginx.conf"), text).unwrap();
        // The worker may be another user.
        Command::new("chmod").args(["-R", "a+rX"]).arg(folder.path()).status().unwrap();
        let child = Command::new("nginx")
            .arg("-c")
            .arg(folder.path().join("nginx.conf"))
            .arg("-e")
            .arg(folder.path().join("error.log"))
            .stderr(Stdio::null())
            .spawn()
            .expect("nginx is installed (apt-get install nginx)");
        eventually("nginx listens", || std::net::TcpStream::connect(address).is_ok());
        Self { child, address, folder }
    }

    pub(crate) fn file(&self, name: &str, body: &[u8]) {
        let path = self.folder.path().join("www").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, body).unwrap();
        Command::new("chmod").args(["-R", "a+rX"]).arg(self.folder.path()).status().unwrap();
    }

    /// Status and bytes of body of each answer for this path so far.
    pub(crate) fn log(&self, path: &str) -> Vec<(u16, usize)> {
        let log = std::fs::read_to_string(self.folder.path().join("access.log")).unwrap_or_default();
        let lines = log.lines().filter_map(|line| line.split_once(&format!(" {path} HTTP/1.1\" "))?.1.split_once(' '));
        lines
            .map(|(status, rest)| (status.parse().unwrap(), rest.split(' ').next().unwrap().parse().unwrap()))
            .collect()
    }

    /// So often and no more; nginx writes its log behind its answers.
    pub(crate) fn was_asked(&self, path: &str, times: usize) {
        let count = || {
            let log = std::fs::read_to_string(self.folder.path().join("access.log")).unwrap_or_default();
            log.lines().filter(|line| line.contains(&format!(" {path} HTTP"))).count()
        };
        eventually("the request is in the log", || count() >= times);
        assert_eq!(count(), times, "{path}");
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // TERM to the master, which ends its worker.
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
    }
}

/// Head and body as curl got them.
pub(crate) fn curl(into: &Path, arguments: &[&str]) -> (String, Vec<u8>) {
    let output = Command::new("curl")
        .args(["-sS", "--max-time", "300", "-D", "-", "-o"])
        .arg(into)
        .args(arguments)
        .output()
        .expect("curl is installed");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    (String::from_utf8_lossy(&output.stdout).to_lowercase(), std::fs::read(into).unwrap_or_default())
}

pub(crate) fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let step = |state: &mut u64| {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state as u8
    };
    (0..len).map(|_| step(&mut state)).collect()
}

#[test]
fn every_size_comes_back_as_it_is_first_missed_then_hit() {
    let nginx = Nginx::start("location / { add_header Cache-Control max-age=600; }");
    let sizes = [0, 1, 4096, 65_535, 65_536, 65_537, 300_000, 1 << 20, 5_000_001];
    let bodies: Vec<_> = sizes.iter().map(|len| noise(*len, *len as u64)).collect();
    for (len, body) in sizes.iter().zip(&bodies) {
        nginx.file(&format!("f{len}"), body);
    }
    let proxy = Proxy::before(&format!("http://{}", nginx.address), "[forward]\nenabled = true\n");
    let out = proxy.folder.path().join("out");
    let via = format!("http://{}", proxy.address);
    for round in 0..3 {
        for (len, body) in sizes.iter().zip(&bodies) {
            let reverse = format!("{via}/f{len}");
            let (head, got) = curl(&out, &[&reverse]);
            assert!(got == *body, "{len} bytes, round {round}");
            let expected = if round == 0 { "fwd=uri-miss; fwd-status=200; stored" } else { "picaflor; hit" };
            assert!(head.contains(expected), "{len}, round {round}: {head}");
            proxy.settle();
            let forward = format!("http://{}/f{len}", nginx.address);
            let (head, got) = curl(&out, &["-x", &via, &forward]);
            assert!(got == *body && head.contains(expected), "forward, {len}, round {round}: {head}");
            proxy.settle();
        }
        nginx.was_asked("/f4096", 2);
    }
}

#[test]
fn nginx_in_front_is_believed_where_it_is_trusted_and_opens_no_way_elsewhere() {
    let near = crate::kit::Origin::constant("cache-control: max-age=60", "of this machine");
    let origin = crate::kit::Origin::start(|request, stream| {
        let told = ["x-forwarded-for", "x-forwarded-proto"].map(|name| request.field(name)).join(" ");
        crate::kit::ok(stream, "cache-control: no-store", told.as_bytes())
    });
    for (trusted, told) in
        [("", "127.0.0.1 http"), ("[front]\ntrusted = [\"127.0.0.1/32\"]\n", "127.0.0.9, 127.0.0.1 https")]
    {
        let proxy = Proxy::before(&origin.url(), trusted);
        let front = Nginx::start(&format!(
            "location / {{ proxy_pass http://{}; proxy_set_header Host $host; proxy_set_header X-Forwarded-Proto https;
             proxy_set_header X-Forwarded-For $remote_addr; }}",
            proxy.address
        ));
        let out = proxy.folder.path().join("out");
        let at = format!("http://{}", front.address);
        assert_eq!(curl(&out, &["--interface", "127.0.0.9", &at]).1, told.as_bytes());
        curl(&out, &["-x", &at, &near.url()]);
        assert_eq!(near.count(), 0);
    }
}

#[test]
fn a_stale_response_is_confirmed_and_a_changed_one_replaced() {
    let nginx = Nginx::start("location / { add_header Cache-Control max-age=1; }");
    nginx.file("page", b"old");
    let proxy = Proxy::before(&format!("http://{}", nginx.address), "");
    let out = proxy.folder.path().join("out");
    let url = format!("http://{}/page", proxy.address);
    assert_eq!(curl(&out, &[&url]).1, b"old");
    crate::kit::sleep(2100);
    let (head, body) = curl(&out, &[&url]);
    assert!(head.contains("fwd=stale; fwd-status=304") && body == b"old", "{head}");
    eventually("fresh again", || curl(&out, &[&url]).0.contains("picaflor; hit"));
    crate::kit::sleep(2100);
    nginx.file("page", b"newer");
    let (head, body) = curl(&out, &[&url]);
    assert!(head.contains("fwd=stale; fwd-status=200; stored") && body == b"newer", "{head}");
}

#[test]
fn compressed_and_plain_are_two_variants() {
    let locations = "gzip_proxied any; location / { gzip on; gzip_min_length 1; gzip_vary on; add_header Cache-Control max-age=60; }";
    let nginx = Nginx::start(locations);
    let text = b"much the same, ".repeat(500);
    nginx.file("text.html", &text);
    let proxy = Proxy::before(&format!("http://{}", nginx.address), "");
    let out = proxy.folder.path().join("out");
    let url = format!("http://{}/text.html", proxy.address);
    for round in 0..3 {
        let (head, body) = curl(&out, &[&url]);
        assert!(body == text && !head.contains("content-encoding"), "{head}");
        assert_eq!(head.contains("picaflor; hit"), round > 0, "{head}");
        proxy.settle();
        let (head, body) = curl(&out, &["--compressed", &url]);
        assert!(body == text && head.contains("content-encoding: gzip"), "{head}");
        assert_eq!(head.contains("picaflor; hit"), round > 0, "{head}");
        proxy.settle();
    }
    nginx.was_asked("/text.html", 2);
    assert!(proxy.purge("http://127.0.0.1/text.html").text().contains("\"purged\":0"), "another host");
    assert!(proxy.purge(&url).text().contains("\"purged\":2"));
    assert!(curl(&out, &[&url]).0.contains("fwd=uri-miss"));
}

#[test]
fn curl_gets_ranges_and_resumes() {
    let nginx = Nginx::start("location / { add_header Cache-Control max-age=60; }");
    let body = noise(200_000, 7);
    nginx.file("f", &body);
    let proxy = Proxy::before(&format!("http://{}", nginx.address), "");
    let out = proxy.folder.path().join("out");
    let url = format!("http://{}/f", proxy.address);
    for (range, expected) in [("0-99", &body[..100]), ("199990-", &body[199_990..]), ("-7", &body[199_993..])] {
        let (head, got) = curl(&out, &["-r", range, &url]);
        assert!(head.contains("206 partial content") && got == expected, "{range}: {head}");
    }
    nginx.was_asked("/f", 1);
    std::fs::write(&out, &body[..1234]).unwrap();
    let (_, got) = curl(&out, &["-C", "-", &url]);
    assert!(got == body, "resumed");
}

#[test]
fn nginx_sends_the_rest_of_what_the_store_has_not_any_more_and_nothing_of_another_version() {
    let nginx = Nginx::start("location / { add_header Cache-Control max-age=600; }");
    let config = "[cache]\ncollapse_window = \"256KiB\"\ncollapse_patience = \"1ms\"\n";
    let proxy = Proxy::before(&format!("http://{}", nginx.address), config);
    for is_replaced in [false, true] {
        let body = noise(24 << 20, 1);
        nginx.file("large", &body);
        let before = proxy.stats()["proxy"]["stored"].as_u64().unwrap();
        let mut slow = proxy.client();
        slow.write("GET", "/large", &[], b"");
        eventually("it is stored", || proxy.stats()["proxy"]["stored"].as_u64() > Some(before));
        assert_eq!(proxy.purge("http://test.example/large").status(), 200);
        if is_replaced {
            nginx.file("large", &noise((24 << 20) - 1, 2));
        }
        match slow.read("GET") {
            Some(whole) => assert!(!is_replaced && whole.body == body),
            None => assert!(is_replaced, "the connection was closed"),
        }
    }
    let stats = proxy.stats();
    let endings = (&stats["proxy"]["bodies_mended"], &stats["proxy"]["bodies_broken"]["cut-origin-changed"]);
    assert_eq!(endings, (&1.into(), &1.into()), "{stats:#}");
}
