//! No bytes make a reader panic, and what it says of them adds up.

use picaflor_lab::trace::{Format, Reader};
use proptest::prelude::*;

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

fn check(bytes: &[u8], format: Option<Format>) -> Result<(), TestCaseError> {
    let Ok(mut reader) = Reader::from_bytes("fuzz", std::io::Cursor::new(bytes.to_vec()), format) else {
        return Ok(());
    };
    let mut requests = 0;
    for request in &mut reader {
        match request {
            Ok(request) => {
                prop_assert!(request.key != 0);
                requests += 1;
            }
            Err(_) => break,
        }
    }
    let report = reader.report();
    prop_assert_eq!(report.requests, requests);
    prop_assert!(report.requests + report.bad + report.skipped.values().sum::<u64>() <= report.lines);
    prop_assert!(report.first_bad.len() as u64 <= report.bad);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        check(&bytes, None)?;
        for (_, format) in Format::ALL {
            check(&bytes, Some(format))?;
        }
    }

    #[test]
    fn nearly_a_log(bytes in nearly()) {
        check(&bytes, None)?;
        for (_, format) in Format::ALL {
            check(&bytes, Some(format))?;
        }
    }

    #[test]
    fn damaged_compression(at in 0_usize..200, bit in 0_u32..8, zstd in any::<bool>()) {
        let text = "1583861727.504 1 me TCP_MISS/200 520 GET http://a.org/b - HIER_DIRECT/1 text/plain\n".repeat(50);
        let mut bytes = if zstd {
            zstd::encode_all(text.as_bytes(), 3).unwrap()
        } else {
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            std::io::Write::write_all(&mut gzip, text.as_bytes()).unwrap();
            gzip.finish().unwrap()
        };
        let at = at % bytes.len();
        bytes[at] ^= 1 << bit;
        check(&bytes, None)?;
    }
}
