//! A few lines of every format, found without being told.

use picaflor_lab::trace::{Format, Kind, Reader, Report, Request};

const SQUID: &str = "\
1583861727.504    107 192.168.206.1 TCP_MISS/200 520 GET http://a.org/success.txt - HIER_DIRECT/2.16.106.72 text/plain
1583861727.701     28 192.168.206.1 TCP_HIT/200 1520 GET http://a.org/ - HIER_NONE/- text/html
1583861728.001      0 192.168.206.1 TCP_MISS/404 520 GET http://a.org/none - HIER_DIRECT/2.16.106.72 text/plain
1583861728.002      0 192.168.206.1 TCP_TUNNEL/200 39 CONNECT b.org:443 - HIER_DIRECT/2.16.106.73 -
";
const COMMON: &str = "\
in24.inetnebr.com - - [01/Aug/1995:00:00:01 -0400] \"GET /shuttle/missions/sts-68.txt HTTP/1.0\" 200 1839
uplherc.upl.com - - [01/Aug/1995:00:00:07 -0400] \"GET / HTTP/1.0\" 304 0
uplherc.upl.com - - [01/Aug/1995:00:00:08 -0400] \"GET /a \"quoted\" word HTTP/1.0\" 200 17
uplherc.upl.com - - [01/Aug/1995:00:00:08 -0400] \"POST /cgi-bin/a HTTP/1.0\" 200 -
";
const COMBINED: &str = "\
1.2.3.4 - - [17/May/2015:10:05:03 +0000] \"GET /p/ HTTP/1.1\" 200 203 \"-\" \"Mozilla/5.0 (X11)\"
1.2.3.4 - - [17/May/2015:10:05:04 +0000] \"GET /p/i.png HTTP/1.1\" 200 2033 \"http://me.org/p/\" \"Mozilla \\\"5\\\"\"
1.2.3.4 - - [17/May/2015:10:05:05 +0000] \"GET /p/j.png HTTP/1.1\" 200 2034 \"http://me.org/p/\" \"Mozilla/5.0\"
";
const NETSCAPE: &str = "\
9.8.7.6 - joe [30/Jan/1999:00:00:01 -0500] \"GET http://a.org/b.gif HTTP/1.0\" 200 1024 200 1024 0 0 215 260 279 254 3
9.8.7.6 - - [30/Jan/1999:00:00:02 -0500] \"GET http://a.org/ HTTP/1.0\" 200 99 200 99 0 0 215 260 279 254 3 DIRECT FIN \
FIN WRITTEN
";
const DEC: &str = "\
1200 1100 839000000 841276289 123456 17 2001 80 55 0 4096 200 1 0 0 1
1200 1100 839000000 841276290 999999 18 2001 80 56 0 512 200 1 0 0 1
1200 1100 839000000 841276291 0 18 2001 80 56 7 512 200 1 0 1 1
";
const CSV: &str =
    "time,obj_id,size,client,server,url,referer\n1.5,1,100,me,a.org,/,\n2,2,50,me,a.org,/x.gif,http://a.org/\n";
const BARE: &str = "0, 1, 68, 5\n1, 2, 7454, -1\n5, 1, 68, -1\n";
const HAR: &str = r#"{"log":{"version":"1.2","creator":{"name":"x"},"pages":[],"entries":[
 {"startedDateTime":"2015-12-16T09:54:12.967+01:00","pageref":"page_1","time":3,
  "request":{"method":"GET","url":"http://a.org/","headers":[]},
  "response":{"status":200,"content":{"size":900,"mimeType":"text/html; charset=utf-8","text":"..."},"bodySize":-1}},
 {"startedDateTime":"2015-12-16T09:54:13.000+01:00","pageref":"page_1",
  "request":{"method":"GET","url":"http://a.org/x.png","headers":[{"name":"Referer","value":"http://a.org/"}]},
  "response":{"status":200,"content":{"size":70},"bodySize":77}},
 {"startedDateTime":"2015-12-16T09:54:13.000+01:00","request":{"method":"GET"},"response":{}}]}}"#;

fn read(text: impl Into<Vec<u8>>, format: Option<Format>) -> Result<(Vec<Request>, Report), String> {
    let bytes = std::io::Cursor::new(text.into());
    let mut reader = Reader::from_bytes("test", bytes, format).map_err(|e| e.to_string())?;
    let requests: Result<Vec<_>, _> = (&mut reader).collect();
    Ok((requests.map_err(|e| e.to_string())?, reader.report().clone()))
}

fn found(text: impl Into<Vec<u8>>, format: Format, requests: usize) -> (Vec<Request>, Report) {
    let (all, report) = read(text, None).unwrap();
    assert_eq!((report.format, all.len()), (format, requests), "{report:?}");
    (all, report)
}

#[test]
fn squid() {
    let (all, report) = found(SQUID, Format::Squid, 2);
    assert_eq!((all[0].time, all[0].size, all[0].kind), (1_583_861_727_504, 520, Kind::Part));
    assert_eq!((all[1].kind, all[1].server, all[1].client), (Kind::Page, all[0].server, all[0].client));
    assert_eq!(report.skipped.into_iter().collect::<Vec<_>>(), [("not a GET", 1), ("not answered 200, 206 or 304", 1)]);
}

#[test]
fn common() {
    let (all, report) = found(COMMON, Format::Common, 3);
    assert_eq!((all[0].time, all[0].size, all[0].server), (807_249_601_000, 1839, 0));
    assert_eq!((all[1].size, all[1].kind), (0, Kind::Page));
    assert_eq!((all[2].size, report.bad), (17, 0));
}

#[test]
fn combined() {
    let (all, _) = found(COMBINED, Format::Combined, 3);
    assert_eq!((all[1].referer, all[2].referer), (all[0].key, all[0].key));
    assert_eq!((all[1].kind, all[1].size), (Kind::Part, 2033));
    assert!(all[0].server != 0 && all.iter().all(|one| one.server == all[0].server), "the site, from its referers");
}

#[test]
fn netscape() {
    let (all, _) = found(NETSCAPE, Format::Netscape, 2);
    assert_eq!((all[0].size, all[1].size, all[0].server), (1024, 99, all[1].server));
}

#[test]
fn dec() {
    let (all, report) = found(DEC, Format::Dec, 2);
    assert_eq!((all[0].time, all[0].size, all[0].server), (841_276_289_123, 4096, all[1].server));
    assert_eq!((report.skipped["not a GET"], all[0].key == all[1].key), (1, false));
    let headed = "size time_sec time_usec client server port path query status type flags method protocol \
                  event_duration server_duration last_mod\n7 841276289 5 1 2 80 3 0 200 0 0 GET 1 1 1 1\n";
    let (all, _) = found(headed, Format::Dec, 1);
    assert_eq!(all[0].size, 7);
}

#[test]
fn comma_separated() {
    let (all, _) = found(CSV, Format::Csv, 2);
    assert_eq!((all[1].referer, all[1].time), (all[0].key, 2000));
    let (all, _) = found(BARE, Format::LibcachesimCsv, 3);
    assert_eq!((all[0].key == all[2].key, all[1].size), (true, 7454));
}

#[test]
fn oracle_general() {
    let mut bytes = Vec::new();
    for (time, object, size, next) in [(1_u32, 7_u64, 100_u32, 2_i64), (1, 8, 200, -1), (9, 7, 100, -1)] {
        bytes.extend(
            [&time.to_le_bytes()[..], &object.to_le_bytes(), &size.to_le_bytes(), &next.to_le_bytes()].concat(),
        );
    }
    let (all, _) = found(bytes.clone(), Format::OracleGeneral, 3);
    assert_eq!((all[0].key == all[2].key, all[1].size, all[2].time), (true, 200, 9000));
    bytes.pop();
    let (all, report) = found(bytes, Format::OracleGeneral, 2);
    assert_eq!((all.len(), report.bad), (2, 1));
}

#[test]
fn har() {
    let (all, report) = found(HAR, Format::Har, 2);
    assert_eq!((all[0].time, all[0].size, all[0].kind), (1_450_256_052_967, 900, Kind::Page));
    assert_eq!((all[1].referer, all[1].size, report.bad), (all[0].key, 77, 1));
    assert!(read("{\"log\":{}}", None).unwrap_err().contains("not an HTTP archive"));
}

#[test]
fn compressed_whatever_its_name() {
    let zstd = zstd::encode_all(SQUID.as_bytes(), 3).unwrap();
    found(zstd, Format::Squid, 2);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut gzip, SQUID.as_bytes()).unwrap();
    let gzip = gzip.finish().unwrap();
    // Two members, as `cat a.gz b.gz` makes them.
    found([&gzip[..], &gzip[..]].concat(), Format::Squid, 4);
    let cut = read(&gzip[..gzip.len() - 20], None).unwrap_err();
    assert!(cut.contains("ends in the middle"), "{cut}");
}

#[test]
fn bad_lines_are_counted_and_shown() {
    let lines: Vec<_> = SQUID.lines().collect();
    let text = [lines[0], "what is this?", lines[1], lines[2], "", "and\tthis"].join("\n");
    let (all, report) = found(text, Format::Squid, 2);
    assert_eq!((all.len(), report.lines, report.bad), (2, 6, 2));
    let [first, second] = &report.first_bad[..] else { panic!("{:?}", report.first_bad) };
    assert_eq!((first.line, &first.text[..], second.line, &second.text[..]), (2, "what is this?", 6, "and\\tthis"));
    assert!(first.why.contains("columns"), "{}", first.why);
}

#[test]
fn a_file_that_is_something_else_is_refused() {
    let squid_as_common = read(SQUID.repeat(5000), Some(Format::Common)).unwrap_err();
    assert!(squid_as_common.contains("10000 of 10000 lines"), "{squid_as_common}");
    assert!(squid_as_common.contains("it looks like squid"), "{squid_as_common}");
    let short = read(COMMON, Some(Format::Squid)).unwrap_err();
    assert!(short.contains("4 of 4") && short.contains("line 1") && short.contains("common"), "{short}");
    assert!(read("just some words\nand more\n", None).unwrap_err().contains("no format known here"));
    assert!(read("", None).unwrap_err().contains("empty"));
}

#[test]
fn a_byte_order_mark_is_no_part_of_a_text() {
    let mark = |text: &str| format!("\u{feff}{text}");
    let (all, report) = found(mark(CSV), Format::Csv, 2);
    assert_eq!((all[0].size, report.bad), (100, 0));
    assert!(all[0].client != 0 && all[0].kind == Kind::Page, "no column is lost: {:?}", all[0]);
    found(mark(HAR), Format::Har, 2);
    assert_eq!(found(mark(SQUID), Format::Squid, 2).1.bad, 0);
    let zstd = zstd::encode_all(mark(CSV).as_bytes(), 3).unwrap();
    found(zstd, Format::Csv, 2);
}

#[test]
fn a_file_that_is_nearly_something_is_refused_with_what_is_wrong() {
    let rows = "1,1,-100\n2,2,-5\n3,3,7\n4,4,-5\n";
    let refused = read(format!("time,obj_id,size\n\n{rows}"), None).unwrap_err();
    assert!(refused.contains("csv comes nearest") && refused.contains("3 of its first 5 lines"), "{refused}");
    assert!(refused.contains("line 3: no number of bytes"), "numbers are those of an editor: {refused}");
    let unknown = read("just some words\n", None).unwrap_err();
    assert!(unknown.contains("--from") && !unknown.contains("--format"), "{unknown}");
}

#[test]
fn half_of_the_lines_are_enough_wherever_they_are() {
    let squid = |lines: usize| SQUID.repeat(lines.div_ceil(4)).lines().take(lines).collect::<Vec<_>>().join("\n");
    let half = format!("{}\n{}", squid(4), "what is this?\n".repeat(4));
    for format in [None, Some(Format::Squid)] {
        let (_, report) = read(half.clone(), format).unwrap();
        assert_eq!((report.format, report.lines, report.bad), (Format::Squid, 8, 4));
    }
    let late = format!("{}{}", "what is this?\n".repeat(120), squid(5000));
    for format in [None, Some(Format::Squid)] {
        let (_, report) = read(late.clone(), format).unwrap();
        assert_eq!((report.lines, report.bad), (5120, 120));
    }
}

#[test]
fn sizes_that_nothing_has_are_bad_lines() {
    let text =
        "time,obj_id,size\n1,1,18446744073709551615\n2,2,100\n3,3,100\n4,4,9223372036854775808\n5,5,17592186044416\n";
    let (all, report) = found(text, Format::Csv, 3);
    assert_eq!((all[2].size, report.bad), (1 << 44, 2));
    assert!(report.first_bad[0].why.contains("more than any object"), "{:?}", report.first_bad);
    // Of what is left, sums may be large, but do not begin again at 0.
    let huge = Request { time: 0, key: 1, size: u64::MAX, ..Request::default() };
    let mut counting = picaflor_lab::stat::Counting::default();
    (1..=3).for_each(|key| counting.add(&Request { key, ..huge }));
    let stat = counting.finish();
    assert_eq!((stat.bytes, stat.unique_bytes, stat.large.1), (u64::MAX, u64::MAX, 1.0));
    let requests = [huge, Request { key: 2, ..huge }];
    let missed = picaflor_lab::cache::replay(picaflor_lab::cache::Policy::Lru, 1 << 30, &requests);
    assert_eq!((missed.requests, missed.bytes), (1.0, 1.0));
}

#[test]
fn formats_have_the_names_they_are_shown_by() {
    for (name, format) in Format::ALL {
        assert_eq!(name.parse::<Format>().unwrap(), format);
        assert_eq!(format.to_string(), name);
        assert_eq!(serde_json::to_value(format).unwrap(), name);
    }
    assert!("apache".parse::<Format>().unwrap_err().contains("combined"));
}
