//! What the rules compare the house with. Edit here, with the reason beside the row, when the house changes.

/// Longest line of a source file, in characters. The same number stands in `rustfmt.toml`.
pub const WIDTH: usize = 120;

/// Most lines of a production file; inline test modules are not counted. A file that grows past it is asking
/// for a second room.
pub const FILE_LINES: usize = 600;

/// Where the types of the engine are, the name of its facade, and most methods that any other has.
pub const METHODS: (&str, &str, usize) = ("crates/engine/src/", "Store", 30);

/// Which of our crates a crate may name in its `[dependencies]`: arrows point to the ground floor only.
/// In `[dev-dependencies]` it may also name whatever those use in turn, and [`FOR_TESTS`].
pub const CRATES: &[(&str, &[&str])] = &[
    ("picaflor-locks", &[]),
    ("picaflor-device", &["picaflor-locks"]),
    ("picaflor-format", &[]),
    // Models of devices and faults: for the lab, the torture and tests, never for a library of the product.
    ("picaflor-sim", &["picaflor-device"]),
    // Hashes know the kinds of frames.
    ("picaflor-common", &["picaflor-format", "picaflor-locks"]),
    ("picaflor-table", &["picaflor-common", "picaflor-device", "picaflor-format", "picaflor-locks"]),
    ("picaflor", &["picaflor-common", "picaflor-device", "picaflor-format", "picaflor-locks"]),
    // Layouts that the engine does not know, behind its seam.
    (
        "picaflor-literature",
        &["picaflor", "picaflor-common", "picaflor-device", "picaflor-format", "picaflor-locks", "picaflor-table"],
    ),
    ("picaflor-shared", &["picaflor"]),
    // A C program opens a socket as it opens a file.
    ("picaflor-capi", &["picaflor", "picaflor-literature", "picaflor-shared"]),
    // Its records are persistent bytes, hence the format.
    ("picaflor-graph", &["picaflor-common", "picaflor-device", "picaflor-format", "picaflor-table"]),
    ("picaflor-proxy", &["picaflor", "picaflor-literature"]),
    // Torture damages a store zone by zone, hence the format.
    ("picaflor-torture", &["picaflor", "picaflor-device", "picaflor-format", "picaflor-literature", "picaflor-sim"]),
    // The PMFLF paper measured its graph, and the thesis of Dámelo a proxy.
    (
        "picaflor-lab",
        &[
            "picaflor",
            "picaflor-common",
            "picaflor-device",
            "picaflor-graph",
            "picaflor-literature",
            "picaflor-proxy",
            "picaflor-sim",
            "picaflor-table",
        ],
    ),
    (
        "picaflor-cli",
        &[
            "picaflor",
            "picaflor-device",
            "picaflor-graph",
            "picaflor-lab",
            "picaflor-literature",
            "picaflor-proxy",
            "picaflor-shared",
        ],
    ),
    ("picaflor-tidy", &[]),
];

/// What any crate may name in its `[dev-dependencies]`: faults, and every row of the table of presets.
pub const FOR_TESTS: &[&str] = &["picaflor-literature", "picaflor-sim"];

/// The floors inside a crate, ground floor first. A module may name modules of its own floor and of those
/// below; a module that stands on no floor is a finding too. Crates that are not listed are not checked.
pub const FLOORS: &[(&str, &[&[&str]])] = &[
    (
        "crates/engine",
        &[
            // What every floor may name.
            &["base", "index", "space"],
            // One device, from an object's bytes to the ring: parts that are still methods of one volume.
            &["api", "background", "cache", "env", "in_place", "log", "read", "recovery", "shared", "volume", "write"],
            // The verbs of a store.
            &["handle", "ops", "store"],
            // What must hold of all of them under any schedule.
            &["models"],
        ],
    ),
    (
        "crates/lab",
        &[
            &["error", "hash"],
            // Drawings know numbers, not where they come from.
            &["draw", "lru", "trace"],
            // What is replayed, and what it is replayed on: neither knows the other.
            &["cache", "exec", "fs", "method", "synth"],
            // One run, then many, then what is said of them.
            &["run", "stat"],
            &["age", "experiment"],
            &["reproduce"],
            // What must hold of any file that the others read.
            &["fuzz"],
        ],
    ),
];

/// The circles of files in each crate: how many files each has, the largest first. The numbers may only go down.
/// `cargo run -p picaflor-tidy --example circles` shows the files. A crate stands after those that it uses.
pub const CIRCLES: &[(&str, &[usize])] = &[
    ("crates/locks", &[]),
    ("crates/format", &[]),
    ("crates/device", &[]),
    ("crates/sim", &[]),
    ("crates/common", &[]),
    ("crates/table", &[]),
    ("crates/engine", &[]),
    ("crates/literature", &[]),
    ("crates/graph", &[]),
    ("crates/proxy", &[]),
    ("crates/capi", &[]),
    ("crates/shared", &[]),
    ("crates/torture", &[]),
    ("crates/lab", &[]),
    ("crates/cli", &[]),
    ("crates/tidy", &[]),
];

/// Methods of the standard library and of other people's crates. A call of one of these names is no arrow to ours.
pub const FOREIGN_METHODS: &str = "\
    advance any as_fd as_mut body bytes capacity clear close compare contains count end entry fill find finish \
    first flush for_each from get hash header host id insert into_bytes into_value is_empty iter join \
    key keys kind len line link load matches name next open parse path peek poll_flush poll_read \
    poll_shutdown poll_write poll_write_vectored pop push put range read_at remaining replace retain round \
    seek send set size sleep slice spawn split status store sum take truncate uri value values wait wake \
    wake_by_ref with write write_all write_at";

/// Where `unsafe` may stand: a folder (ending in `/`) or one exact file, each for a reason.
pub const UNSAFE: &[&str] = &[
    // Aligned buffers, io_uring submissions and the descriptors behind them.
    "crates/device/src/",
    // A raw lock is an unsafe trait: its implementation promises that it excludes.
    "crates/locks/src/raw.rs",
    // Pointers come in and go out: the C interface is made of them.
    "crates/capi/src/",
    // Python's buffer protocol is pointers.
    "doors/python/src/view.rs",
];

/// Words that are taken by another word of the glossary: where the rule looks, the word, what we say instead.
/// Whole words, any case, in code and comments but not in string literals.
pub const WORDS: &[(&str, &str, &str)] = &[
    ("crates/engine/", "tombstone", "delete log"),
    ("crates/format/", "tombstone", "delete log"),
    ("crates/engine/", "memtable", "open buffer"),
    ("crates/engine/", "garbage collection", "reclaim"),
    ("crates/engine/", "garbage collector", "reclaim"),
    ("crates/engine/", "evacuate", "reinsert"),
    // A thread, a caller, an object has a name.
    ("", "nobody", "which: no caller, no thread, no object"),
    ("", "somebody", "which: a caller, a thread, an object"),
    ("", "anybody", "which: any caller, any thread, any object"),
    ("", "whoever", "which: the caller, the thread, the process that does it"),
    ("", "whitelist", "allow-list"),
    ("", "blacklist", "deny-list"),
];

/// What a newcomer is told to type: the README names it, and this file must exist for it to work.
pub const COMMANDS: &[(&str, &str)] =
    &[("cargo run --release -- serve", "crates/cli/Cargo.toml"), ("scripts/test", "scripts/test")];

/// The page that names the engine's files and functions, and where those are.
pub const GUIDE: &str = "docs/ARCHITECTURE.md";
/// See [`GUIDE`].
pub const GUIDED: &str = "crates/engine/src/";

/// Pages that are read before anything else: how long they may be, and in what that is counted.
pub const SHORT: &[(&str, usize, &str)] = &[
    (GUIDE, 3000, "words"),
    ("docs/PERFORMANCE.md", 2000, "words"),
    ("README.md", 900, "words"),
    ("CHANGELOG.md", 30, "lines"),
];
