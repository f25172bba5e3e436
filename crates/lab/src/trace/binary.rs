//! libCacheSim's oracleGeneral: records of 24 bytes, little-endian: time in seconds (32 bits), object (64), size
//! (32), and the number of the object's next request, or -1 (64), which is not needed here.

use super::{Line, Request, url};

pub(super) const RECORD: usize = 24;

pub(super) fn record(bytes: &[u8; RECORD]) -> Line {
    let [time @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] = bytes;
    let mut object = [0; 8];
    object.copy_from_slice(&bytes[4..12]);
    let mut size = [0; 4];
    size.copy_from_slice(&bytes[12..16]);
    let next = next(bytes);
    if next < -1 {
        return Line::bad(format!("the next request has the number {next}"));
    }
    Line::Request(Request {
        time: u64::from(u32::from_le_bytes(*time)) * 1000,
        key: url::name(&object),
        size: u64::from(u32::from_le_bytes(size)),
        ..Request::default()
    })
}

fn next(bytes: &[u8; RECORD]) -> i64 {
    let mut next = [0; 8];
    next.copy_from_slice(&bytes[16..]);
    i64::from_le_bytes(next)
}

/// Whether these bytes look like records: times that never fall, and next requests that lie ahead or are none.
pub(super) fn likely(sample: &[u8]) -> bool {
    let (records, _) = sample.as_chunks::<RECORD>();
    let mut last = 0;
    let ordered = records.iter().enumerate().all(|(at, record)| {
        let time = u32::from_le_bytes([record[0], record[1], record[2], record[3]]);
        let ahead = matches!(next(record), -1 | i64::MAX) || next(record) > at as i64;
        let rises = time >= last;
        last = time;
        ahead && rises
    });
    // Sizes and numbers of requests have zeros at their upper end; a text has none anywhere.
    !records.is_empty() && ordered && sample.contains(&0)
}
