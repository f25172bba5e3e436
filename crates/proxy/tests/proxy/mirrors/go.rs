//! Go: a module proxy names no hosts.

use std::process::Command;

use super::{Mirror, done, is_here, write};

#[test]
fn go_downloads_from_a_mirror_whose_origin_is_gone() {
    if !is_here("go", "golang-go") || !is_here("python3", "python3") {
        return;
    }
    let mut mirror = Mirror::start("go", "");
    let made = mirror.room("made");
    let module = "test.example/picahello";
    let folder = format!("{module}@v1.0.0");
    let manifest = format!("module {module}\n\ngo 1.18\n");
    write(&made.join(&folder).join("go.mod"), &manifest);
    write(&made.join(&folder).join("hello.go"), "package picahello\n\nconst Said = \"hello from a module\"\n");
    let files = ["go.mod", "hello.go"].map(|name| format!("{folder}/{name}"));
    // The paths in it are as they are given, which a list of files on the command line would not keep.
    let zip =
        "import sys, zipfile\nwith zipfile.ZipFile('m.zip', 'w') as z:\n  [z.write(name) for name in sys.argv[1:]]";
    done(Command::new("python3").args(["-c", zip]).args(files).current_dir(&made));
    let nginx = mirror.nginx();
    let at = |name: &str| format!("{module}/@v/{name}");
    nginx.file(&at("list"), b"v1.0.0\n");
    nginx.file(&at("v1.0.0.info"), b"{\"Version\":\"v1.0.0\",\"Time\":\"2026-01-01T00:00:00Z\"}");
    nginx.file(&at("v1.0.0.mod"), manifest.as_bytes());
    nginx.file(&at("v1.0.0.zip"), &std::fs::read(made.join("m.zip")).unwrap());

    let packages = ["v1.0.0.info", "v1.0.0.mod", "v1.0.0.zip"].map(|name| format!("/{}", at(name)));
    mirror.twice(&packages.each_ref().map(String::as_str), |mirror, room| {
        let own = [("GOPATH", "go"), ("GOCACHE", "built"), ("GOMODCACHE", "modules")];
        let mut command = mirror.client("go", room);
        command.envs(own.map(|(name, folder)| (name, room.join(folder))));
        command.envs([("GOSUMDB", "off"), ("GOTOOLCHAIN", "local"), ("GOFLAGS", "-modcacherw"), ("GOENV", "off")]);
        let latest = format!("{module}@latest");
        done(command.env("GOPROXY", mirror.url()).args(["mod", "download", "-json", &latest]));
        let text = std::fs::read_to_string(room.join("modules").join(&folder).join("hello.go")).unwrap();
        assert!(text.contains("hello from a module"), "{text}");
    });
}
