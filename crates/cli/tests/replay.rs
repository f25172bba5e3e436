//! The main job on real input: a real nginx as origin, real curl, the access log of a real site, and `kill -9` in the
//! middle of it. Every body is compared with the origin's file; what was stored before the last second is a hit
//! within a second of the restart.
#![allow(clippy::unwrap_used)] // a test that cannot go on fails

use std::{
    collections::HashMap,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    time::{Duration, Instant},
};

/// Larger objects of the log are cut to this, more than a cluster: the log is the point, not the bytes.
const LARGEST: usize = 300_000;

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn body(id: usize, len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| ((at + id as u64 * 7919).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// One request of the log: which object, and the page that led to it.
struct Asked {
    id: usize,
    referer: Option<usize>,
}

struct Trace {
    asked: Vec<Asked>,
    sizes: HashMap<usize, usize>,
}

impl Trace {
    fn read() -> Self {
        let file =
            fs::File::open(Path::new(env!("CARGO_MANIFEST_DIR")).join("../lab/traces/semicomplete.csv.gz")).unwrap();
        let mut lines = BufReader::new(flate2::read::GzDecoder::new(file)).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "time,obj_id,size,client,server,url,referer");
        let (mut asked, mut sizes, mut ids) = (Vec::new(), HashMap::new(), HashMap::new());
        for line in lines {
            let line = line.unwrap();
            let fields: Vec<&str> = line.split(',').collect();
            let (id, size): (usize, usize) = (fields[1].parse().unwrap(), fields[2].parse().unwrap());
            ids.insert(format!("http://semicomplete.com{}", fields[5]), id);
            sizes.insert(id, size.min(LARGEST));
            let referer = fields.get(6).and_then(|page| ids.get(*page).copied());
            asked.push(Asked { id, referer });
        }
        Self { asked, sizes }
    }
}

fn start_nginx(folder: &Path, trace: &Trace) -> (Killed, u16) {
    let root = folder.join("www");
    for (id, size) in &trace.sizes {
        let place = root.join(id.to_string());
        fs::create_dir_all(&place).unwrap();
        fs::write(place.join("object.bin"), body(*id, *size)).unwrap();
    }
    fs::create_dir_all(root.join("docs")).unwrap();
    for (name, len) in [("empty.html", 0), ("one.html", 1), ("large.iso", 30_000_000)] {
        fs::write(root.join("docs").join(name), body(1, len)).unwrap();
    }
    // Held, but not listened at, until nginx has it too: no other process gets the port in between.
    let held = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    held.set_reuse_port(true).unwrap();
    held.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    let port = held.local_addr().unwrap().as_socket().unwrap().port();
    let at = folder.display();
    // Without a master, so that killing the child leaves no worker behind.
    let conf = format!(
        "daemon off; master_process off; pid {at}/nginx.pid; error_log {at}/error.log;\n\
         events {{ worker_connections 256; }}\n\
         http {{ access_log off; client_body_temp_path {at}; proxy_temp_path {at}; fastcgi_temp_path {at};\n\
         uwsgi_temp_path {at}; scgi_temp_path {at};\n\
         server {{ listen 127.0.0.1:{port} reuseport; root {at}/www; expires 1h; }} }}\n"
    );
    fs::write(folder.join("nginx.conf"), conf).unwrap();
    // As root nginx would drop to a user who may not read the folder.
    let user = if fs::metadata("/proc/self").is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0) {
        vec!["-g", "user root;"]
    } else {
        Vec::new()
    };
    let child = Command::new("nginx")
        .args(["-e", "stderr", "-c"])
        .arg(folder.join("nginx.conf"))
        .args(user)
        .stderr(Stdio::null())
        .spawn()
        .expect("nginx is installed: scripts/packages does that");
    let child = Killed(child);
    let deadline = Instant::now() + Duration::from_secs(60);
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < deadline, "nginx does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    (child, port)
}

struct Serve {
    child: Killed,
    address: String,
    /// What it printed before it listened.
    said: Vec<String>,
}

impl Serve {
    fn start(folder: &Path, origin: u16) -> Self {
        let text = format!(
            "workers = 2\nlisten = [\"127.0.0.1:0\"]\n[store]\npath = \"p.store\"\ncapacity = \"1GiB\"\n\
             memory = \"32MiB\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[[origin]]\nurl = \"http://127.0.0.1:{origin}\"\n"
        );
        fs::write(folder.join("p.toml"), text).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_picaflor"))
            .current_dir(folder)
            .args(["serve", "--config", "p.toml"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (mut address, mut said) = (String::new(), Vec::new());
        // What follows the receipt.
        while !said.iter().any(|line: &String| line.starts_with("device   ")) {
            let line = lines.next().unwrap_or_else(|| panic!("it ended: {said:?}")).unwrap();
            address = line.strip_prefix("listen   ").map_or(address, str::to_owned);
            said.push(line);
        }
        std::thread::spawn(move || lines.for_each(drop));
        Self { child: Killed(child), address, said }
    }
}

/// A client that keeps its connection.
struct Client {
    reader: BufReader<TcpStream>,
}

impl Client {
    fn connect(address: &str) -> Option<Self> {
        let stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Some(Self { reader: BufReader::new(stream) })
    }

    /// The `Cache-Status` and the body; `None` if the server is gone.
    fn get(&mut self, asked: &Asked) -> Option<(String, Vec<u8>)> {
        let referer =
            asked.referer.map(|id| format!("Referer: http://site.test/{id}/object.bin\r\n")).unwrap_or_default();
        let request = format!("GET /{}/object.bin HTTP/1.1\r\nHost: site.test\r\n{referer}\r\n", asked.id);
        self.reader.get_mut().write_all(request.as_bytes()).ok()?;
        let (mut status, mut len, mut line) = (String::new(), None, String::new());
        loop {
            line.clear();
            self.reader.read_line(&mut line).ok().filter(|n| *n > 0)?;
            if line == "\r\n" {
                break;
            }
            status = line.strip_prefix("cache-status: ").map_or(status, |value| value.trim().to_owned());
            len = line.strip_prefix("content-length: ").map_or(len, |value| value.trim().parse().ok());
        }
        let mut bytes = vec![0; len?];
        self.reader.read_exact(&mut bytes).ok()?;
        Some((status, bytes))
    }
}

/// Replays part of the log with a few clients until it is over or the server is killed. Returns how many were hits.
fn replay(serve: &Serve, trace: &Trace, asked: &[Asked], killed: &AtomicBool) -> usize {
    let hits = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for part in 0..4 {
            let hits = &hits;
            scope.spawn(move || {
                let Some(mut client) = Client::connect(&serve.address) else {
                    return assert!(killed.load(SeqCst), "refused");
                };
                for asked in asked.iter().skip(part).step_by(4) {
                    let Some((status, bytes)) = client.get(asked) else {
                        return assert!(killed.load(SeqCst), "cut off at object {}", asked.id);
                    };
                    assert!(bytes == body(asked.id, trace.sizes[&asked.id]), "wrong bytes of {}: {status}", asked.id);
                    hits.fetch_add(usize::from(status.starts_with("picaflor; hit")), SeqCst);
                }
            });
        }
    });
    hits.into_inner()
}

fn curl(serve: &Serve, folder: &Path, name: &str) -> (String, Vec<u8>) {
    let (out, head) = (folder.join("curl.body"), folder.join("curl.head"));
    let url = format!("http://{}/docs/{name}", serve.address);
    let mut curl = Command::new("curl");
    curl.args(["-sS", "-m", "300", "-H", "Host: site.test", &url, "-o"]).arg(&out).arg("-D").arg(&head);
    assert!(curl.status().unwrap().success());
    let head = fs::read_to_string(head).unwrap();
    let status = head.lines().find_map(|line| line.strip_prefix("cache-status: ")).unwrap_or_default();
    (status.to_owned(), fs::read(out).unwrap_or_default())
}

fn store_of(folder: &Path) -> PathBuf {
    folder.join("p.store")
}

#[test]
fn a_sites_log_is_served_right_through_crashes() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let trace = Trace::read();
    let (_nginx, port) = start_nginx(folder, &trace);
    let alive = AtomicBool::new(false);
    let mut serve = Serve::start(folder, port);
    for (name, len) in [("empty.html", 0), ("one.html", 1), ("large.iso", 30_000_000)] {
        let (status, bytes) = curl(&serve, folder, name);
        assert!(bytes == body(1, len) && status.contains("stored"), "{name}: {status}");
    }
    let quarter = trace.asked.len() / 4;
    for round in 0..3 {
        let part = &trace.asked[round * quarter..(round + 1) * quarter];
        let hits = replay(&serve, &trace, part, &alive);
        assert!(hits > part.len() / 3, "{hits} of {}", part.len());
        let probes: Vec<&Asked> = part.iter().step_by(7).collect();
        let mut client = Client::connect(&serve.address).unwrap();
        let is_hit = |client: &mut Client, asked: &Asked| client.get(asked).unwrap().0.starts_with("picaflor; hit");
        let stored: Vec<&Asked> = probes.iter().copied().filter(|asked| is_hit(&mut client, asked)).collect();
        // A cache may decline what comes faster than its device writes; it is not to decline much.
        assert!(stored.len() * 20 > probes.len() * 19, "{} of {}", stored.len(), probes.len());
        // The bound: what was stored a second ago survives.
        std::thread::sleep(Duration::from_millis(1500));
        let killed = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (serve, killed, rest) = (&serve, &killed, &trace.asked[(round + 1) * quarter..]);
            scope.spawn(|| replay(serve, &trace, rest, killed));
            std::thread::sleep(Duration::from_millis(100 + 150 * round as u64));
            killed.store(true, SeqCst);
            let pid = serve.child.0.id().to_string();
            assert!(Command::new("kill").args(["-9", &pid]).status().unwrap().success());
        });
        drop(serve);
        assert!(store_of(folder).exists());
        let began = Instant::now();
        serve = Serve::start(folder, port);
        let said = serve.said.join("\n");
        assert!(said.contains("recovered") && said.contains("kept"), "{said}");
        let mut client = Client::connect(&serve.address).unwrap();
        let (status, _) = client.get(stored[0]).unwrap();
        let first = began.elapsed();
        assert!(status.starts_with("picaflor; hit"), "first after the crash: {status}\n{said}");
        println!("round {round}: first hit {first:?} after the start; {said}");
        for asked in stored {
            let (status, bytes) = client.get(asked).unwrap();
            assert!(bytes == body(asked.id, trace.sizes[&asked.id]), "wrong bytes of {}", asked.id);
            assert!(status.starts_with("picaflor; hit"), "object {} was lost: {status}\n{said}", asked.id);
        }
    }
    for (name, len) in [("empty.html", 0), ("one.html", 1), ("large.iso", 30_000_000)] {
        let (status, bytes) = curl(&serve, folder, name);
        assert!(bytes == body(1, len) && status.starts_with("picaflor; hit"), "{name}: {status}");
    }
}
