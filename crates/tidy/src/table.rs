//! What the rules compare the house with. Edit here, with the reason beside the row, when the house changes.

/// Longest line of a source file, in characters. The same number stands in `rustfmt.toml`.
pub const WIDTH: usize = 120;

/// Most lines of a production file; inline test modules are not counted. A file that grows past it is asking
/// for a second room.
pub const FILE_LINES: usize = 600;

/// Which of our crates a crate may name in its `[dependencies]`: arrows point to the ground floor only.
/// In `[dev-dependencies]` it may also name whatever those use in turn.
pub const CRATES: &[(&str, &[&str])] = &[
    ("picaflor-locks", &[]),
    ("picaflor-device", &["picaflor-locks"]),
    ("picaflor-format", &[]),
    ("picaflor", &["picaflor-device", "picaflor-format", "picaflor-locks"]),
    ("picaflor-capi", &["picaflor"]),
    ("picaflor-shared", &["picaflor"]),
    // Its records are persistent bytes, hence the format.
    ("picaflor-graph", &["picaflor", "picaflor-format"]),
    ("picaflor-proxy", &["picaflor"]),
    // Torture damages a store zone by zone, hence the format.
    ("picaflor-torture", &["picaflor", "picaflor-device", "picaflor-format"]),
    // The PMFLF paper measured its graph, and the thesis of Dámelo a proxy.
    ("picaflor-lab", &["picaflor", "picaflor-device", "picaflor-graph", "picaflor-proxy"]),
    (
        "picaflor-cli",
        &["picaflor", "picaflor-device", "picaflor-graph", "picaflor-lab", "picaflor-proxy", "picaflor-shared"],
    ),
    ("picaflor-tidy", &[]),
];

/// The floors inside a crate, ground floor first. A module may name modules of its own floor and of those
/// below; a module that stands on no floor is a finding too. Crates that are not listed are not checked.
pub const FLOORS: &[(&str, &[&[&str]])] = &[
    (
        "crates/engine",
        &[
            // Parts that know none of the others.
            &[
                "blocks", "commits", "error", "files", "group", "hash", "index", "journal", "leases", "listed",
                "packet", "reading", "space", "spread", "stats", "sync",
            ],
            // What lives in memory, and who leaves it.
            &["buffers", "eviction", "memory", "object", "placement", "waiting"],
            // Hash tables on a device: beside the volumes, on blocks of their own.
            &["htod"],
            // One volume and what is done to it; the options it is opened with.
            &[
                "adopt",
                "append",
                "batch",
                "checkpoint",
                "compact",
                "daemons",
                "flush",
                "full",
                "inspect",
                "leave",
                "locality",
                "options",
                "packing",
                "pages",
                "place",
                "preset",
                "reclaim",
                "recovery",
                "rows",
                "scrub",
                "tabled",
                "volume",
            ],
            // The verbs of a store.
            &[
                "check", "chunks", "delete", "fetch", "framing", "get", "hands", "home", "keys", "many", "put",
                "store", "stream",
            ],
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
            &["experiment"],
            &["reproduce"],
            // What must hold of any file that the others read.
            &["fuzz"],
        ],
    ),
];

/// Arrows that point up all the same: the file, the module it uses, each for a reason.
pub const UP: &[(&str, &str)] = &[
    // An object larger than a cluster fetches its chunks from the store when they are asked for.
    ("crates/engine/src/object.rs", "chunks"),
    ("crates/engine/src/object.rs", "store"),
];

/// Where `unsafe` may stand: a folder (ending in `/`) or one exact file, each for a reason.
pub const UNSAFE: &[&str] = &[
    // Aligned buffers, io_uring submissions and the descriptors behind them.
    "crates/device/src/",
    // A raw lock is an unsafe trait: whoever implements it promises that it excludes.
    "crates/locks/src/raw.rs",
    // Pointers come in and go out: the C interface is made of them.
    "crates/capi/src/",
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
    ("", "whitelist", "allow-list"),
    ("", "blacklist", "deny-list"),
];

/// What a newcomer is told to type: the README names it, and this file must exist for it to work.
pub const COMMANDS: &[(&str, &str)] =
    &[("cargo run --release -- serve", "crates/cli/Cargo.toml"), ("scripts/test", "scripts/test")];
