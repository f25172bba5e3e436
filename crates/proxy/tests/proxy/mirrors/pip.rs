//! pip: PyPI's index has absolute links to another host, which are replaced; the wheel is that of the other origin.

use std::process::Command;

use super::{Mirror, done, is_here, sum, write};

#[test]
fn pip_installs_from_a_mirror_whose_origin_is_gone() {
    if !is_here("python3", "python3") || !is_here("pip3", "python3-pip") {
        return;
    }
    let locations = "location /simple/ { index index.html; default_type text/html; }";
    let mut mirror = Mirror::start("pip", locations);
    let made = mirror.room("made");
    let info = "picahello-1.0.dist-info";
    write(&made.join("picahello/__init__.py"), "said = 'hello from a wheel'\n");
    write(&made.join(info).join("METADATA"), "Metadata-Version: 2.1\nName: picahello\nVersion: 1.0\n");
    let wheel = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n";
    write(&made.join(info).join("WHEEL"), wheel);
    write(&made.join(info).join("RECORD"), "");
    let name = "picahello-1.0-py3-none-any.whl";
    done(Command::new("python3").args(["-m", "zipfile", "-c", name, "picahello", info]).current_dir(&made));
    let path = format!("/packages/ab/cd/{name}");
    let nginx = mirror.nginx();
    nginx.file(&path[1..], &std::fs::read(made.join(name)).unwrap());
    let digest = sum("sha256sum", &made.join(name));
    let index = format!(
        "<!DOCTYPE html><html><body><a href=\"https://files.pythonhosted.org{path}#sha256={digest}\">{name}</a></body></html>"
    );
    nginx.file("simple/picahello/index.html", index.as_bytes());

    mirror.twice(&[&path], |mirror, room| {
        let index = format!("{}/simple/", mirror.url());
        let pip = |arguments: &[&str]| {
            let mut command = mirror.client("pip3", room);
            command.args(arguments).args([
                "--isolated",
                "--no-cache-dir",
                "--disable-pip-version-check",
                "--retries",
                "0",
            ]);
            done(command.args(["--index-url", &index, "--trusted-host", "127.0.0.1", "--trusted-host", "localhost"]))
        };
        pip(&["download", "--dest", "wheels", "picahello"]);
        assert_eq!(sum("sha256sum", &room.join("wheels").join(name)), digest);
        pip(&["install", "--target", "site", "Picahello"]);
        let import = "import picahello; print(picahello.said)";
        let said = done(mirror.client("python3", room).env("PYTHONPATH", room.join("site")).args(["-c", import]));
        assert_eq!(said, "hello from a wheel\n");
    });
}
