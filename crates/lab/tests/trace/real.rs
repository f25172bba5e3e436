//! Real logs, against counts that another program made of them.

use std::{collections::HashSet, path::Path};

use picaflor_lab::trace::{Format, Trace};

struct Expected {
    file: &'static str,
    format: Format,
    requests: usize,
    objects: usize,
    unique_bytes: u64,
    clients: usize,
    servers: usize,
}

#[test]
fn counts_are_those_of_others() {
    let all = [
        Expected {
            file: "traces/semicomplete.csv.gz",
            format: Format::Csv,
            requests: 9348,
            objects: 1339,
            unique_bytes: 561_277_715,
            clients: 1650,
            servers: 1,
        },
        Expected {
            file: "tests/data/nasa-jul95-head.log.gz",
            format: Format::Common,
            requests: 3779,
            objects: 512,
            unique_bytes: 25_472_656,
            clients: 413,
            servers: 1,
        },
        Expected {
            file: "traces/har-pageloads.csv.gz",
            format: Format::Csv,
            requests: 1235,
            objects: 633,
            unique_bytes: 14_371_598,
            clients: 17,
            servers: 79,
        },
    ];
    for expected in all {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(expected.file);
        let mut trace = Trace::load(&[path], None, |_| {}).unwrap();
        // One page of NASA's was only ever answered with 304.
        let weightless = trace.settle_sizes();
        assert_eq!(weightless, u64::from(expected.format == Format::Common), "{}", expected.file);
        let distinct = |of: fn(&picaflor_lab::trace::Request) -> u64| {
            trace.requests.iter().map(of).filter(|name| *name != 0).collect::<HashSet<_>>().len()
        };
        let report = &trace.reports[0];
        assert_eq!((report.format, report.bad), (expected.format, 0), "{}", expected.file);
        assert_eq!(trace.requests.len(), expected.requests, "{}", expected.file);
        assert_eq!(distinct(|request| request.key), expected.objects, "{}", expected.file);
        assert_eq!(trace.unique_bytes(), expected.unique_bytes, "{}", expected.file);
        assert_eq!(distinct(|request| request.client), expected.clients, "{}", expected.file);
        // NASA's log knows nothing of other sites, so not even its own name.
        let servers = if expected.format == Format::Common { 0 } else { expected.servers };
        assert_eq!(distinct(|request| request.server), servers, "{}", expected.file);
    }
}
