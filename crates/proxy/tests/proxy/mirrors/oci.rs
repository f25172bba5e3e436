//! Images: a registry in a folder, whose blobs are a redirect away. With skopeo, and with curl as a client of the
//! registry where that is missing.

use std::{path::Path, process::Command};

use super::{Mirror, done, is_here, sum, write};
use crate::nginx::noise;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// Where the registry has an image of this layer and this configuration, and the paths of what never changes.
fn image(mirror: &Mirror) -> Vec<String> {
    let made = mirror.room("made");
    write(&made.join("layer/hello"), "hello from an image\n");
    std::fs::write(made.join("layer/noise"), noise(300_000, 3)).unwrap();
    done(Command::new("tar").args(["-C", "layer", "-cf", "layer.tar", "."]).current_dir(&made));
    let diff = sum("sha256sum", &made.join("layer.tar"));
    done(Command::new("gzip").args(["-n", "layer.tar"]).current_dir(&made));
    let config = serde_json::json!({
        "architecture": "amd64", "os": "linux", "config": {},
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{diff}")] },
    });
    write(&made.join("config"), &config.to_string());
    let mut paths = vec![];
    let mut described = |name: &str, kind: &str| {
        let (digest, body) = (sum("sha256sum", &made.join(name)), std::fs::read(made.join(name)).unwrap());
        mirror.nginx().file(&format!("storage/sha256:{digest}"), &body);
        paths.push(format!("/v2/library/hello/blobs/sha256:{digest}"));
        serde_json::json!({ "mediaType": kind, "digest": format!("sha256:{digest}"), "size": body.len() })
    };
    let manifest = serde_json::json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": described("config", "application/vnd.oci.image.config.v1+json"),
        "layers": [described("layer.tar.gz", "application/vnd.oci.image.layer.v1.tar+gzip")],
    });
    mirror.nginx().file("v2/library/hello/manifests/latest", manifest.to_string().as_bytes());
    paths
}

#[test]
fn an_image_is_copied_from_a_mirror_whose_origin_is_gone() {
    let locations = format!(
        "location = /v2/ {{ default_type application/json; return 200 '{{}}'; }}
         location ~ /manifests/ {{ default_type {MANIFEST}; }}
         location ~ /blobs/(.*)$ {{ add_header Cache-Control no-cache always; return 307 /storage/$1; }}
         location /storage/ {{ default_type application/octet-stream; }}"
    );
    let has_skopeo = is_here("skopeo", "skopeo");
    let mut mirror = Mirror::start("oci", &locations);
    let blobs = image(&mirror);
    let paths: Vec<_> = blobs.iter().map(String::as_str).collect();
    mirror.twice(&paths, |mirror, room| {
        if has_skopeo {
            let image = format!("docker://{}/library/hello:latest", mirror.proxy.address);
            let command = &mut mirror.client("skopeo", room);
            command.args(["--insecure-policy", "copy", "--src-tls-verify=false", &image, "dir:image"]);
            // skopeo unpacks nothing in a folder: what is there has its digest for its name, and was verified.
            done(command.env("TMPDIR", room));
        } else {
            std::fs::create_dir(room.join("image")).unwrap();
            get(mirror, &room.join("image/manifest.json"), "/v2/library/hello/manifests/latest");
            for path in &blobs {
                get(mirror, &room.join("image").join(path.rsplit(':').next().unwrap()), path);
            }
        }
        let manifest = std::fs::read_to_string(room.join("image/manifest.json")).unwrap();
        for path in &blobs {
            let digest = path.rsplit(':').next().unwrap();
            assert!(
                manifest.contains(digest) && sum("sha256sum", &room.join("image").join(digest)) == digest,
                "{path}"
            );
        }
    });
}

fn get(mirror: &Mirror, into: &Path, path: &str) {
    let mut command = mirror.client("curl", into.parent().unwrap());
    done(command.args(["-sSf", "-H", &format!("Accept: {MANIFEST}"), "-o"]).arg(into).arg(mirror.url() + path));
}
