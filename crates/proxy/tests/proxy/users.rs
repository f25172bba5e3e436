//! Users of the forward side: curl with `--proxy-user`, and what each refusal says.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
};

use picaflor_proxy::Low;

use crate::{
    kit::{Message, Origin, Proxy, eventually, ok},
    nginx::curl,
};

/// `secret`, as libxcrypt hashes it, and `p:ä"` under the prefix of Apache's htpasswd.
const ALICE: &str = "alice:$2b$04$ZdDPTBMzl4fbTt..gAb29Oroam0qlQO6vlpDpUZkuSw14ObL8P1vm";
const BOB: &str = "bob:$2y$04$abcdefghijklmnopqrstuugdwVNqp4gr1BH80N2xdhlUTG/32dWxe";
/// Of `a-long-token`, as sha256sum says.
const ROBOT: &str = "robot:sha256:";

/// Says what it was told of credentials.
fn origin() -> Origin {
    Origin::start(|request, stream| {
        let told = request.field("proxy-authorization").to_owned() + request.field("authorization");
        ok(stream, "cache-control: max-age=60", format!("told: {told}").as_bytes())
    })
}

struct Users {
    file: PathBuf,
    _folder: tempfile::TempDir,
}

impl Users {
    fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("users");
        std::fs::write(&file, text).unwrap();
        Self { file, _folder: folder }
    }

    /// `[forward]`, with more of it.
    fn table(&self, more: &str) -> String {
        format!("[forward]\nusers = {:?}\n{more}", self.file)
    }
}

fn robot() -> String {
    let hash = std::process::Command::new("sh").args(["-c", "printf %s a-long-token | sha256sum"]).output().unwrap();
    format!("{ROBOT}{}", String::from_utf8_lossy(&hash.stdout).split(' ').next().unwrap())
}

fn wants_credentials(reply: &Message) {
    assert_eq!((reply.status(), reply.cache()), (407, "picaflor; detail=credentials"), "{reply:?}");
    let challenges: Vec<_> = reply.fields.iter().filter(|(name, _)| name == "proxy-authenticate").collect();
    assert!(challenges[0].1.starts_with("Basic realm=") && challenges[1].1.starts_with("Bearer realm="));
}

#[test]
fn curl_goes_elsewhere_with_the_credentials_of_a_user_and_the_log_has_the_name() {
    let (origin, users) = (origin(), Users::new(&format!("# those of the house\n\n{ALICE}\n{BOB}\n{}\n", robot())));
    let log = tempfile::NamedTempFile::new().unwrap();
    let more = format!("connect_ports = [{}]\n[log]\nto = {:?}\n", origin.address.port(), log.path());
    let mut proxy = Proxy::start(&users.table(&more));
    let (out, via) = (proxy.folder.path().join("out"), format!("http://{}", proxy.address));
    let token = "Proxy-Authorization: bearer a-long-token";
    let (url, own) = (format!("{}/x", origin.url()), format!("{}/own", origin.url()));
    let cases: [(&[&str], bool); 8] = [
        (&[], false),
        (&["--proxy-user", "alice:secret"], true),
        (&["--proxy-user", "bob:p:ä\""], true),
        (&["--proxy-anyauth", "--proxy-user", "bob:p:ä\""], true),
        (&["--proxy-header", token], true),
        (&["--proxy-user", "alice:wrong"], false),
        (&["--proxy-user", "carol:secret"], false),
        (&["--proxy-header", "Proxy-Authorization: Bearer a-long-tokem"], false),
    ];
    for (arguments, is_let) in cases {
        for round in 0..2 {
            let (head, body) = curl(&out, &[&["-x", &via], arguments, &[&url]].concat());
            let said = (head.contains(" 200 "), body == b"told: ");
            assert_eq!(said, (is_let, is_let), "{arguments:?}, {round}: {head}");
            proxy.settle();
        }
    }
    assert_eq!(origin.count(), 1, "one is stored for all");
    let tunnel = ["-p", "-x", &via, "--proxy-user", "alice:secret", "-u", "own:password", &own];
    assert_eq!(curl(&out, &tunnel).1, b"told: Basic b3duOnBhc3N3b3Jk", "through a tunnel go the origin's");
    eventually("the tunnel has ended", || proxy.stats()["proxy"]["requests"]["tunnel"] == 1);
    proxy.stop().unwrap();
    let log = std::fs::read_to_string(log.path()).unwrap();
    let of = |name: &str| log.lines().filter(|line| line.starts_with(&format!("127.0.0.1 - {name} ["))).count();
    assert_eq!((of("alice"), of("bob"), of("robot")), (3, 4, 2), "{log}");
    assert_eq!(log.lines().filter(|line| line.contains("\"CONNECT ") && line.contains("- alice [")).count(), 1);
    for secret in ["secret", "a-long-token", "YWxpY2U6"] {
        assert!(!log.contains(secret), "{log}");
    }
}

#[test]
fn what_is_no_credential_is_refused_before_anything_is_asked_and_the_reverse_side_is_open() {
    let (origin, users) = (origin(), Users::new(ALICE));
    let proxy = Proxy::before(&origin.url(), &users.table(""));
    let url = format!("{}/x", origin.url());
    let alice = "proxy-authorization: Basic YWxpY2U6c2VjcmV0";
    assert_eq!(proxy.client().send("GET", &url, &[alice], b"").text(), "told: ");
    proxy.settle();
    assert!(proxy.client().send("GET", &url, &[alice], b"").is_hit());
    for fields in [
        &[][..],
        &[alice, alice],
        &["proxy-authorization: Basic"],
        &["proxy-authorization: Basic ?"],
        &["proxy-authorization: Basic YWxpY2U="],
        &["proxy-authorization: Digest YWxpY2U6c2VjcmV0"],
        &["authorization: Basic YWxpY2U6c2VjcmV0"],
    ] {
        for (method, target) in [("GET", url.as_str()), ("POST", &url), ("CONNECT", "127.0.0.1:443")] {
            wants_credentials(&proxy.client().send(method, target, fields, b""));
        }
    }
    assert_eq!(origin.count(), 1);
    assert_eq!(proxy.client().send("GET", "/own", &[alice], b"").text(), "told: ", "nothing is asked, or passed on");
}

#[test]
fn a_reload_takes_other_users_or_says_what_is_wrong_with_them() {
    let (origin, users) = (origin(), Users::new(ALICE));
    let proxy = Proxy::start(&users.table(""));
    let status = |credentials: &str| {
        let field = format!("proxy-authorization: Basic {credentials}");
        proxy.client().send("GET", &format!("{}/x", origin.url()), &[&field], b"").status()
    };
    let (alice, bob) = ("YWxpY2U6c2VjcmV0", "Ym9iOnA6w6Qi");
    assert_eq!([alice, bob].map(status), [200, 407]);
    std::fs::write(&users.file, BOB).unwrap();
    assert_eq!(proxy.admin("POST", "/reload").status(), 200);
    assert_eq!([alice, bob].map(status), [407, 200]);
    std::fs::write(&users.file, "alice:secret").unwrap();
    let reply = proxy.admin("POST", "/reload");
    let named = format!("forward.users: {}:1: the hash of alice is not one of bcrypt", users.file.display());
    assert!(reply.status() == 409 && reply.text().contains(&named), "{}", reply.text());
    assert_eq!([alice, bob].map(status), [407, 200]);
}

#[test]
fn curl_gets_where_its_user_may_go_and_nowhere_else() {
    let (origin, users) = (origin(), Users::new(&format!("{ALICE}\n{BOB}\n")));
    let port = origin.address.port();
    let log = tempfile::NamedTempFile::new().unwrap();
    let entries = |bob: &str| {
        format!(
            "connect_ports = [{port}]\n[[forward.access]]\naction = \"deny\"\nhosts = [\"local*\"]\nusers = [\"alice\"]\n\
             [[forward.access]]\naction = \"allow\"\nusers = [\"alice\"]\nports = [{port}]\n\
             [[forward.access]]\naction = \"{bob}\"\nusers = [\"bob\"]\nhosts = [\"LocalHost\"]\n[log]\nto = {:?}\n",
            log.path()
        )
    };
    let proxy = Proxy::start(&users.table(&entries("allow")));
    let (out, via) = (proxy.folder.path().join("out"), format!("http://{}", proxy.address));
    let (alice, bob) = ("alice:secret", "bob:p:ä\"");
    let gets = |user: &str, url: &str| {
        let (head, body) = curl(&out, &["-x", &via, "--proxy-user", user, url]);
        proxy.settle();
        assert_eq!(head.contains(" 200 "), body == b"told: ", "{head}");
        assert!(body == b"told: " || head.contains(" 403 ") && head.contains("detail=forward-access"), "{head}");
        body == b"told: "
    };
    let tunnels = |user: &str, url: &str| {
        let output = std::process::Command::new("curl")
            .args(["-sS", "-p", "-x", &via, "--proxy-user", user, url])
            .output()
            .expect("curl is installed");
        let refused = String::from_utf8_lossy(&output.stderr).contains("403");
        assert!(refused || output.stdout == b"told: ", "{output:?}");
        !refused
    };
    for (user, may) in [(alice, [true, false]), (bob, [false, true])] {
        for (name, may) in ["127.0.0.1", "localhost"].into_iter().zip(may) {
            for url in [format!("http://{name}:{port}/x"), format!("http://{}:{port}/x", name.to_uppercase())] {
                // What is stored is for those that may go there.
                for round in 0..2 {
                    assert_eq!(gets(user, &url), may, "{user} {url} {round}");
                }
                assert_eq!(tunnels(user, &url), may, "{user} {url}");
            }
        }
    }
    assert!(!gets(alice, "http://127.0.0.1:1/x"), "another port");
    assert!(!gets(alice, &format!("http://localhost.:{port}/x")), "the same host");
    assert_eq!(proxy.stats()["proxy"]["denied"]["forward-access"], 6 + 6 + 2);
    eventually("the log tells who", || {
        let log = std::fs::read_to_string(log.path()).unwrap();
        log.lines().filter(|line| line.contains("- bob [") && line.contains(" 403 ")).count() == 6
    });
}

#[test]
fn a_reload_takes_who_may_go_where_also_for_what_is_answered_at_once() {
    let origin = origin();
    let parse = |text: &str| Low::parse("p.toml", text).unwrap();
    let entry = |host: &str| format!("[[forward.access]]\naction = \"allow\"\nhosts = [\"{host}\"]\n");
    let proxy = Proxy::start("");
    let new = Arc::new(Mutex::new(parse("")));
    let source = new.clone();
    proxy.server().reload_from(parse(""), move || Ok(source.lock().unwrap().clone()));
    let url = format!("{}/x", origin.url());
    let status = || {
        let mut client = proxy.client();
        client.host = origin.address.to_string();
        let reply = client.send("GET", &url, &[], b"");
        proxy.settle();
        reply.status()
    };
    assert_eq!(status(), 200);
    eventually("it is for the fast path", || status() == 200 && proxy.stats()["proxy"]["requests"]["hit-fast"] != 0);
    for (host, expected) in [("example.org", 403), ("127.0.0.1", 200)] {
        *new.lock().unwrap() = parse(&entry(host));
        assert_eq!(proxy.admin("POST", "/reload").status(), 200);
        assert_eq!([status(), status()], [expected; 2], "{host}");
    }
    *new.lock().unwrap() = parse(&entry("http://x"));
    let reply = proxy.admin("POST", "/reload");
    assert!(reply.status() == 409 && reply.text().contains("forward.access.hosts"), "{}", reply.text());
    assert_eq!(status(), 200);
    *new.lock().unwrap() = parse("");
    assert_eq!(proxy.admin("POST", "/reload").status(), 200);
    assert_eq!(status(), 200);
}

#[test]
fn a_file_of_users_that_will_not_do_is_refused_at_the_start() {
    let refused = |text: &str, more: &str| {
        let users = Users::new(text);
        let mut low = Low::parse("p.toml", &users.table(more)).unwrap();
        low.store.path = Some(users.file.with_extension("store"));
        low.resolve().unwrap_err().to_string()
    };
    let (twice, tokens) = (format!("{ALICE}\n{ALICE}"), format!("{}\n{}", robot(), robot().replace("robot", "other")));
    for (text, why) in [
        ("", "has no user"),
        ("alice", "NAME:HASH"),
        ("a b:x", "a name is"),
        ("alice:$apr1$x$y", "htpasswd -B"),
        (&ALICE.replace("$04$", "$15$"), "the cost of alice"),
        (&twice, ":2: alice is there twice"),
        (&tokens, ":2: the token is that of robot"),
        ("robot:sha256:12", "64 hexadecimal digits"),
    ] {
        let e = refused(text, "");
        assert!(e.starts_with("forward.users: ") && e.contains(why), "{e}");
    }
    assert!(refused(ALICE, "enabled = false\n").contains("forward.enabled is false"));
    let unknown = refused(ALICE, "[[forward.access]]\naction = \"allow\"\nusers = [\"carol\"]\n");
    assert_eq!(unknown, "forward.access.users: `carol` is not in forward.users");
}
