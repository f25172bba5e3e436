//! apt: a signed repository is as large as one that is trusted as it is; indexes come by their digest.

use std::{path::Path, process::Command};

use super::{Mirror, done, is_here, sum, write};

#[test]
fn apt_installs_from_a_mirror_whose_origin_is_gone() {
    if !is_here("apt-get", "apt") || !is_here("dpkg-deb", "dpkg") {
        return;
    }
    let mut mirror = Mirror::start("apt", "");
    let made = mirror.room("made");
    let architecture = done(Command::new("dpkg").arg("--print-architecture")).trim().to_owned();
    let control = format!(
        "Package: picahello\nVersion: 1.0\nArchitecture: {architecture}\nMaintainer: T <t@test.example>\nDescription: t\n"
    );
    write(&made.join("deb/DEBIAN/control"), &control);
    write(&made.join("deb/usr/share/picahello/hello"), "hello from a package\n");
    done(Command::new("dpkg-deb").args(["--build", "deb", "picahello.deb"]).current_dir(&made));
    let deb = std::fs::read(made.join("picahello.deb")).unwrap();
    let pool = "pool/main/p/picahello/picahello_1.0.deb";
    let packages = format!(
        "{control}Filename: {pool}\nSize: {}\nSHA256: {}\n\n",
        deb.len(),
        sum("sha256sum", &made.join("picahello.deb"))
    );
    write(&made.join("Packages"), &packages);
    let digest = sum("sha256sum", &made.join("Packages"));
    let index = format!("main/binary-{architecture}");
    let release = format!(
        "Suite: bookworm\nCodename: bookworm\nDate: Thu, 01 Jan 2026 00:00:00 UTC\nArchitectures: {architecture}\n\
         Components: main\nAcquire-By-Hash: yes\nSHA256:\n {digest} {} {index}/Packages\n",
        packages.len()
    );
    let nginx = mirror.nginx();
    nginx.file(&format!("debian/{pool}"), &deb);
    nginx.file("debian/dists/bookworm/Release", release.as_bytes());
    let by_hash = format!("/debian/dists/bookworm/{index}/by-hash/SHA256/{digest}");
    nginx.file(&by_hash[1..], packages.as_bytes());

    mirror.twice(&[&format!("/debian/{pool}"), &by_hash], |mirror, room| {
        for folder in ["etc/apt/apt.conf.d", "etc/apt/preferences.d", "var/lib/apt/lists/partial"] {
            std::fs::create_dir_all(room.join(folder)).unwrap();
        }
        std::fs::create_dir_all(room.join("var/cache/apt/archives/partial")).unwrap();
        write(&room.join("var/lib/dpkg/status"), "");
        write(
            &room.join("etc/apt/sources.list"),
            &format!("deb [trusted=yes] {}/debian bookworm main\n", mirror.url()),
        );
        let config = room.join("apt.conf");
        let own = format!(
            "Dir {room:?};\nDir::State::status {:?};\nAPT::Sandbox::User \"\";\nAcquire::Languages \"none\";\n\
             Acquire::Retries \"0\";\n",
            room.join("var/lib/dpkg/status")
        );
        write(&config, &own);
        let apt = |arguments: &[&str]| done(mirror.client("apt-get", room).env("APT_CONFIG", &config).args(arguments));
        apt(&["update", "--error-on=any"]);
        apt(&["install", "-y", "--download-only", "picahello"]);
        let archive = room.join(format!("var/cache/apt/archives/picahello_1.0_{architecture}.deb"));
        done(Command::new("dpkg-deb").arg("-x").arg(archive).arg(room.join("root")));
        assert_eq!(read(&room.join("root/usr/share/picahello/hello")), "hello from a package\n");
    });
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}
