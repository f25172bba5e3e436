//! Sizes and times as written, errors with their line, defaults that are safe.

use super::*;

fn parse(text: &str) -> Result<Config, ConfigError> {
    Low::parse("p.toml", text)?.resolve()
}

#[test]
fn sizes_and_times_read_as_people_write_them() {
    for (text, bytes) in [("0", 0), ("65536", 65536), ("4KiB", 4096), ("1.5 GiB", 3 << 29), ("2GB", 2_000_000_000)] {
        assert_eq!(text.parse::<Size>(), Ok(Size(bytes)), "{text}");
    }
    for (text, millis) in [("500ms", 500), ("10s", 10_000), ("5 min", 300_000), ("1h", 3_600_000), ("0", 0)] {
        assert_eq!(text.parse::<Span>().map(Span::millis), Ok(millis), "{text}");
    }
    for bad in ["", "x", "4 parsecs", "-1s", "10"] {
        assert!(bad.parse::<Span>().is_err(), "{bad}");
    }
    assert_eq!(Size(3 << 30).to_string(), "3GiB");
    assert_eq!(Size(1000).to_string(), "1000B");
    assert_eq!(Span::secs(90).to_string(), "90s");
}

#[test]
fn an_unknown_key_is_named_with_its_line_and_the_nearest_key() {
    let e = parse("workers = 1\n\n[cache]\nnegativ = \"5s\"\n").unwrap_err();
    assert_eq!(e.to_string(), "p.toml:4: unknown key `negativ`; did you mean `negative`?");
    let e = parse("listn = []\n").unwrap_err();
    assert_eq!(e.to_string(), "p.toml:1: unknown key `listn`; did you mean `listen`?");
    let e = parse("[store]\npath = \"a\"\nzzzzzzzz = 1\n").unwrap_err();
    assert_eq!(e.place, "p.toml:3");
    assert!(e.why.contains("known here: path, capacity"), "{e}");
}

#[test]
fn a_wrong_value_is_named_with_its_line() {
    assert_eq!(parse("\nlisten = [\"nowhere\"]\n").unwrap_err().place, "p.toml:2");
    assert_eq!(parse("[limits]\ndrain = \"soon\"\n").unwrap_err().place, "p.toml:2");
    assert!(parse("[cache]\nheuristic_fraction = 7.0\n").unwrap_err().to_string().contains("outside 0..=1"));
    for url in ["ftp://x", "x", "http://x/y", "https://x/?q"] {
        let e = parse(&format!("[[origin]]\nurl = \"{url}\"\n")).unwrap_err();
        assert!(e.place.starts_with("origin"), "{e}");
    }
    let twice =
        "[[origin]]\nhost = \"A.example\"\nurl = \"http://x\"\n[[origin]]\nhost = \"a.example\"\nurl = \"http://y\"\n";
    assert!(parse(twice).unwrap_err().why.contains("two origins"));
}

#[test]
fn a_value_that_cannot_be_is_named_with_file_line_and_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.toml");
    // What lies in a shared folder would be taken for the store, and some file systems say that a PiB is free.
    let too_much = format!("[store]\npath = \"{}/none\"\ncapacity = \"8000000TiB\"\n", folder.path().display());
    let origins = "[[origin]]\nurl = \"http://a\"\n\n[[origin]]\nhost = \"b\"\nurl = \"ftp://b\"\n";
    for (text, line, key) in [
        ("\nworkers = 0\n", 2, "workers"),
        ("[store]\npath = \"a\"\ndurability = \"soon\"\n", 3, "store.durability"),
        ("[store]\npath = \"a\"\ndelete_durability = \"none\"\n", 3, "store.delete_durability"),
        ("[admin]\ntoken = \"short\"\n", 2, "admin.token"),
        ("[front]\nproxy_protocol = true\n", 2, "front.proxy_protocol"),
        (origins, 6, "origin.url"),
        ("[[rule]]\npath = \"/a\"\n\n[[rule]]\npath = \"b\"\n", 5, "rule.path"),
        (
            "[[forward.access]]\naction = \"allow\"\n\n[[forward.access]]\naction = \"deny\"\nhosts = [\"b\", \"a/b\"]\n",
            6,
            "forward.access.hosts",
        ),
        ("[store]\n# small\ncapacity = \"100KiB\"\n", 3, "store.capacity"),
        (&too_much, 3, "store.capacity"),
        ("[store]\ncapacity = \"64MiB\"\nmemory = \"1MiB\"\n", 3, "store.memory"),
        ("[store]\nmemory = \"1MiB\"\n", 2, "store.memory"),
        ("[store]\npreset = \"hummingbrd\"\n", 2, "store.preset"),
        ("[store]\ncapacity = \"64MiB\"\npath = \"/no/such/folder/a\"\n", 3, "store.path"),
    ] {
        std::fs::write(&path, text).unwrap();
        let e = Low::read(&path).unwrap().resolve().unwrap_err().in_file(&path);
        assert_eq!(e.place, format!("{}:{line}: {key}", path.display()), "{e}");
    }
    let e = ConfigError::value("cache.negative", "of a flag".into());
    assert_eq!(e.clone().in_file(&path), e);
}

#[test]
fn the_defaults_are_safe() {
    let config = parse("").unwrap();
    assert!(config.listen.iter().all(|a| a.ip().is_loopback()) && config.admin.listen.ip().is_loopback());
    assert!(config.forward.clients.iter().all(|net| net.addr().is_loopback()));
    assert_eq!(config.forward.connect_ports, [443]);
    assert_eq!(config.log.to, "off");
    let origin = "[[origin]]\nurl = \"http://127.0.0.1:9\"\n";
    for (text, enabled) in [("", true), (origin, false), (&format!("[forward]\nenabled = true\n{origin}"), true)] {
        assert_eq!(parse(text).unwrap().forward.enabled, enabled, "{text}");
    }
}

#[test]
fn deletes_are_as_durable_as_puts_unless_told_otherwise() {
    let seconds = std::time::Duration::from_secs;
    let default_count = picaflor::Options::new("").delete_count;
    for (said, bound, time, count) in [
        ("", "1s", seconds(1), default_count),
        ("durability = \"10s\"", "10s", seconds(10), default_count),
        ("durability = \"none\"", "1s", seconds(1), default_count),
        ("durability = \"every-put\"", "every-delete", seconds(1), 1),
        ("durability = \"every-put\"\ndelete_durability = \"5s\"", "5s", seconds(5), default_count),
        ("durability = \"none\"\ndelete_durability = \"every-delete\"", "every-delete", seconds(1), 1),
    ] {
        let store = parse(&format!("[store]\n{said}\n")).unwrap().store;
        let options = store.options().unwrap();
        assert_eq!(store.delete_durability, bound, "{said}");
        assert_eq!((options.delete_time, options.delete_count), (time, count), "{said}");
    }
}

#[test]
fn the_resolved_configuration_is_a_valid_file() {
    let text = "listen = [\"127.0.0.1:0\"]\n[[origin]]\nurl = \"http://127.0.0.1:8080\"\n[log]\nformat = \"json\"\n\
        [[rule]]\nhost = \"a\"\nttl = \"1h\"\nmax_object = \"1 MiB\"\nresponse_set = { Server = \"x\" }\n\
        follow_redirects = 2\nfollow_hosts = [\"*.a.example\"]\nreplace = { a = \"b\" }\n";
    let config = parse(text).unwrap();
    let again = parse(&config.to_toml()).unwrap();
    assert_eq!(config.to_toml(), again.to_toml());
    assert!(config.to_toml().contains("format = \"json\""));
}

#[test]
fn flags_win_over_the_file() {
    let file = Low::parse("p.toml", "workers = 3\n[cache]\nnegative = \"1s\"\n").unwrap();
    let flags = Low { workers: Some(1), ..Low::default() };
    let both = file.under(flags).resolve().unwrap();
    assert_eq!((both.workers, both.cache.negative), (1, Span::secs(1)));
}

#[test]
fn an_error_is_the_same_though_something_else_fills_the_disk() {
    let error = |key: &str, about: &str, why: &str| ConfigError::no_room(key, about.into(), why.into());
    let first = error("store.capacity", "900TiB", "900TiB, and . has 500 MiB free; give less");
    assert!(first.is_about_the_same(&error("store.capacity", "900TiB", "900TiB, and . has 499 MiB free; give less")));
    assert!(!first.is_about_the_same(&error("store.capacity", "800TiB", "800TiB, and . has 500 MiB free; give less")));
    assert!(!first.is_about_the_same(&error("store.memory", "900TiB", "900TiB, and . has 500 MiB free; give less")));
    let plain = |why: &str| ConfigError::value("origin", why.into());
    assert!(plain("two, and more").is_about_the_same(&plain("two, and more")));
    assert!(!plain("two, and more").is_about_the_same(&plain("two, and others")));
}
