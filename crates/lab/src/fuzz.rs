//! What must hold whatever a trace or an experiment's file says. `scripts/fuzz` looks for bytes that break this, guided
//! by coverage; what it kept lies in `fuzz/corpus` and is replayed here as a test.

use std::io::Cursor;

use crate::{
    experiment::Spec,
    synth::Synthetic,
    trace::{Format, Known, Reader, Request, write_csv},
};

/// One target: its name, and what must not panic.
pub type Target = (&'static str, fn(&[u8]));

/// The targets.
pub const TARGETS: &[Target] = &[("trace", trace), ("experiment", experiment)];

/// The first byte says in which format the rest is read; beyond the last, the content does.
fn trace(bytes: &[u8]) {
    let Some((&format, bytes)) = bytes.split_first() else { return };
    let format = Format::ALL.get(usize::from(format)).map(|(_, format)| *format);
    let requests = read(bytes, format);
    if requests.is_empty() {
        return;
    }
    // What was read can be written, and is then read again: other names for the same.
    let mut again = Vec::new();
    let written = write_csv(requests.iter().copied(), &mut again).expect("memory takes all of it");
    assert_eq!(written, requests.len() as u64);
    let same = read(&again, Some(Format::Csv));
    let known = |requests: &[Request]| -> Vec<_> {
        requests.iter().map(|request| (request.time, request.size, request.kind, request.client == 0)).collect()
    };
    assert_eq!(known(&same), known(&requests));
}

/// The requests of a trace, up to the first error; what the report says of them adds up.
fn read(bytes: &[u8], format: Option<Format>) -> Vec<Request> {
    let Ok(mut reader) = Reader::from_bytes("fuzz", Cursor::new(bytes.to_vec()), format) else { return Vec::new() };
    let requests: Vec<_> = reader.by_ref().map_while(Result::ok).collect();
    assert!(requests.iter().all(|request| request.key != 0));
    let report = reader.report();
    assert_eq!(report.requests, requests.len() as u64);
    assert!(report.requests + report.bad + report.skipped.values().sum::<u64>() <= report.lines);
    assert!(report.first_bad.len() as u64 <= report.bad);
    requests
}

fn experiment(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match Spec::parse("fuzz", text) {
        Ok(spec) => {
            let quick = spec.quickly();
            assert!(quick.memory_mib > 0 && quick.disk_mib.iter().all(|mib| *mib > 0));
        }
        Err(why) => assert!(why.to_string().contains("fuzz"), "{why}"),
    }
    let _ = Known::named(text);
    let _ = text.parse::<Synthetic>();
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Format, trace};

    #[test]
    fn the_corpora_find_nothing() {
        super::replay::all(super::TARGETS);
    }

    /// Bytes that come close to being a log: pieces of lines of all formats, put together at random.
    fn nearly() -> impl Strategy<Value = Vec<u8>> {
        const PIECES: [&str; 30] = [
            "1583861727.504",
            " ",
            "192.168.206.1",
            "TCP_MISS/200",
            "520",
            "GET",
            "http://a.org/b",
            "-",
            "\n",
            "\t",
            ",",
            "\"",
            "[17/May/2015:10:05:03 +0000]",
            "200",
            "203",
            "HTTP/1.1",
            "time,obj_id,size",
            "\\",
            "{\"log\":{\"entries\":[",
            "{\"request\":{}}",
            "]}}",
            "\r\n",
            "http://",
            "/",
            "841276289",
            "99999999999999999999",
            "[",
            "]",
            "é",
            "\u{0}",
        ];
        prop::collection::vec(prop::sample::select(&PIECES[..]), 0..200).prop_map(|pieces| pieces.concat().into_bytes())
    }

    /// In the format that the content has, and in all there are.
    fn in_all_formats(bytes: &[u8]) {
        for format in 0..=Format::ALL.len() as u8 {
            trace(&[&[format], bytes].concat());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]

        #[test]
        fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            in_all_formats(&bytes);
        }

        #[test]
        fn nearly_a_log(bytes in nearly()) {
            in_all_formats(&bytes);
        }

        #[test]
        fn damaged_compression(at in 0_usize..200, bit in 0_u32..8, zstd in any::<bool>()) {
            let line = "1583861727.504 1 me TCP_MISS/200 520 GET http://a.org/b - HIER_DIRECT/1 text/plain\n";
            let text = line.repeat(50);
            let mut bytes = if zstd {
                zstd::encode_all(text.as_bytes(), 3).unwrap()
            } else {
                let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                std::io::Write::write_all(&mut gzip, text.as_bytes()).unwrap();
                gzip.finish().unwrap()
            };
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            trace(&[&[u8::MAX][..], &bytes].concat());
        }
    }
}
