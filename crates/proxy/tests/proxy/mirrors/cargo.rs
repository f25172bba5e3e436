//! cargo: `config.json` of the index says where crates are, on another host, which is replaced.

use std::{path::Path, process::Command};

use super::{Mirror, done, is_here, sum, write};

#[test]
fn cargo_fetches_from_a_mirror_whose_origin_is_gone() {
    let program = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    if !is_here(&program, "cargo, or https://rustup.rs") {
        return;
    }
    let mut mirror = Mirror::start("cargo", "");
    let made = mirror.room("made");
    let manifest = "[package]\nname = \"picahello\"\nversion = \"1.0.0\"\nedition = \"2021\"\ndescription = \"t\"\n\
                    license = \"MIT\"\n[workspace]\n";
    write(&made.join("Cargo.toml"), manifest);
    write(&made.join("src/lib.rs"), "pub const SAID: &str = \"hello from a crate\";\n");
    let cargo = |mirror: &Mirror, room: &Path| {
        let mut command = mirror.client(&program, room);
        // The compiler beside it.
        let beside = Path::new(&program).parent().map(|folder| folder.join("rustc")).filter(|rustc| rustc.exists());
        command.env("CARGO_HOME", room.join("cargo-home")).envs(beside.map(|rustc| ("RUSTC", rustc)));
        command
    };
    done(cargo(&mirror, &made).args(["package", "--no-verify", "--offline"]));
    let file = made.join("target/package/picahello-1.0.0.crate");
    let line = serde_json::json!({
        "name": "picahello", "vers": "1.0.0", "deps": [], "features": {}, "yanked": false,
        "cksum": sum("sha256sum", &file),
    });
    let nginx = mirror.nginx();
    nginx.file("config.json", b"{\"dl\": \"https://static.crates.io/crates\", \"api\": \"https://crates.io\"}");
    nginx.file("pi/ca/picahello", format!("{line}\n").as_bytes());
    let path = "/crates/picahello/1.0.0/download";
    nginx.file(&path[1..], &std::fs::read(&file).unwrap());

    mirror.twice(&[path], |mirror, room| {
        let source = format!(
            "[source.crates-io]\nreplace-with = \"mirror\"\n[source.mirror]\nregistry = \"sparse+{}/\"\n\
             [net]\nretry = 0\n",
            mirror.url()
        );
        write(&room.join("cargo-home/config.toml"), &source);
        let manifest = "[package]\nname = \"user\"\nversion = \"1.0.0\"\nedition = \"2021\"\n[dependencies]\n\
                        picahello = \"1\"\n[workspace]\n";
        write(&room.join("Cargo.toml"), manifest);
        write(&room.join("src/lib.rs"), "");
        done(cargo(mirror, room).arg("fetch"));
        let found = Command::new("find").arg(room.join("cargo-home/registry/src")).args(["-name", "lib.rs"]).output();
        let found = String::from_utf8(found.unwrap().stdout).unwrap();
        let text = std::fs::read_to_string(found.trim()).unwrap();
        assert!(text.contains("hello from a crate"), "{text}");
    });
}
