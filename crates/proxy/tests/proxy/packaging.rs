//! What image and chart bring along: their configurations do, and fit what stands beside them; the health check tells a
//! proxy that runs from one that does not.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};

use picaflor_proxy::{Config, Low};

use crate::kit::Proxy;

fn packaging(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(name)
}

/// As `check-config` reads it, but with its store in a folder that there is, and no larger than a disk of tests holds.
fn checked(text: &str) -> (Low, Config) {
    let folder = tempfile::tempdir().unwrap();
    let mut low = Low::parse("p.toml", text).unwrap();
    let written = low.clone();
    assert_eq!(low.store.path.as_deref(), Some(Path::new("/var/lib/picaflor/store")));
    low.store.path = Some(folder.path().join("store"));
    low.store.capacity = "256MiB".parse().ok();
    low.store.memory = "64MiB".parse().ok();
    (written, low.resolve().unwrap())
}

#[test]
fn the_images_configuration_does_and_what_it_is_made_of_is_there() {
    let text = std::fs::read_to_string(packaging("container/picaflor.toml")).unwrap();
    let (_, config) = checked(&text);
    assert!(config.forward.clients.iter().all(|net| net.addr().is_loopback()), "it is no open proxy");
    let recipe = std::fs::read_to_string(packaging("container/Dockerfile")).unwrap();
    let copied: Vec<_> = recipe.split_whitespace().filter(|word| word.starts_with("packaging/container/")).collect();
    assert!(copied.len() == 3 && recipe.contains("scripts/install command /usr"));
    for name in copied {
        assert!(packaging("..").join(name).exists(), "{name}");
    }
}

#[test]
fn the_charts_configuration_does_and_fits_the_values_beside_it() {
    let values = std::fs::read_to_string(packaging("helm/picaflor/values.yaml")).unwrap();
    let (_, block) = values.split_once("\nconfig: |\n").unwrap();
    let lines = block.lines().take_while(|line| line.is_empty() || line.starts_with("  "));
    let text: String = lines.map(|line| format!("{}\n", line.strip_prefix("  ").unwrap_or_default())).collect();
    let (written, config) = checked(&text);
    let value = |name: &str| {
        let mut named = values.lines().filter_map(|line| line.trim().strip_prefix(&format!("{name}: ")));
        named.next_back().unwrap().to_owned()
    };
    let number = |name: &str| value(name).parse::<u16>().unwrap();
    assert_eq!(config.admin.listen, SocketAddr::from(([0, 0, 0, 0], number("adminPort"))));
    assert_eq!(config.listen, [SocketAddr::from(([0, 0, 0, 0], number("targetPort")))]);
    let mut room = Low::default();
    room.store.capacity = (value("size") + "B").parse().ok();
    room.store.memory = (value("memory") + "B").parse().ok();
    assert!(room.store.capacity > written.store.capacity && room.store.memory > written.store.memory);
}

#[test]
fn the_health_check_tells_a_proxy_that_runs() {
    let mut proxy = Proxy::start("");
    let (host, port) = (proxy.admin.ip().to_string(), proxy.admin.port().to_string());
    let healthy = || Command::new(packaging("container/healthy")).args([&host, &port]).output().unwrap();
    let output = healthy();
    assert!(output.status.success() && output.stdout == b"ok\n", "{output:?}");
    // The clients' own port says something else.
    let other = proxy.address.port().to_string();
    assert!(!Command::new(packaging("container/healthy")).args([&host, &other]).status().unwrap().success());
    proxy.stop().unwrap();
    assert!(!healthy().status.success());
}
