//! npm: what is known of a package names its tarballs on `registry.npmjs.org`, for which npm takes its own registry.

use super::{Mirror, done, is_here, write};

#[test]
fn npm_installs_from_a_mirror_whose_origin_is_gone() {
    if !is_here("npm", "npm") {
        return;
    }
    let locations = "location = /picahello { default_type application/json; try_files /picahello.json =404; }";
    let mut mirror = Mirror::start("npm", locations);
    let made = mirror.room("made");
    // Its files are named, for npm itself writes beside them.
    let manifest = serde_json::json!({ "name": "picahello", "version": "1.0.0", "files": ["index.js"] });
    write(&made.join("package.json"), &manifest.to_string());
    write(&made.join("index.js"), "module.exports = 'hello from a tarball';\n");
    let packed: serde_json::Value =
        serde_json::from_str(&done(mirror.client("npm", &made).args(["pack", "--json", "--offline"]))).unwrap();
    let packed = &packed[0];
    let path = "/picahello/-/picahello-1.0.0.tgz";
    let version = serde_json::json!({
        "name": "picahello",
        "version": "1.0.0",
        "dist": {
            "tarball": format!("https://registry.npmjs.org{path}"),
            "integrity": packed["integrity"],
            "shasum": packed["shasum"],
        },
    });
    let known = serde_json::json!({
        "name": "picahello",
        "dist-tags": { "latest": "1.0.0" },
        "versions": { "1.0.0": version },
    });
    let nginx = mirror.nginx();
    nginx.file(&path[1..], &std::fs::read(made.join("picahello-1.0.0.tgz")).unwrap());
    nginx.file("picahello.json", known.to_string().as_bytes());

    mirror.twice(&[path], |mirror, room| {
        write(&room.join("package.json"), "{\"name\": \"user\", \"version\": \"1.0.0\", \"private\": true}");
        write(&room.join(".npmrc"), &format!("registry={}/\nfetch-retries=0\n", mirror.url()));
        let quiet = ["--no-audit", "--no-fund", "--no-update-notifier", "--cache", "kept"];
        done(mirror.client("npm", room).args(["install", "picahello"]).args(quiet));
        let said = done(mirror.client("node", room).args(["-e", "console.log(require('picahello'))"]));
        assert_eq!(said, "hello from a tarball\n");
        let lock = std::fs::read_to_string(room.join("package-lock.json")).unwrap();
        assert!(lock.contains("picahello-1.0.0.tgz"), "{lock}");
    });
}
