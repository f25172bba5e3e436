//! Comma-separated values: with a header that names the columns, or libCacheSim's without one.

use std::collections::HashMap;

use super::{Kind, Line, Request, log, url};

/// What a column may be called, and what it is. Order matters nowhere else.
const NAMES: [(&str, Column); 18] = [
    ("time", Column::Time),
    ("timestamp", Column::Time),
    ("clock_time", Column::Time),
    ("obj_id", Column::Object),
    ("object_id", Column::Object),
    ("object", Column::Object),
    ("id", Column::Object),
    ("key", Column::Object),
    ("size", Column::Size),
    ("obj_size", Column::Size),
    ("object_size", Column::Size),
    ("client", Column::Client),
    ("client_id", Column::Client),
    ("server", Column::Server),
    ("host", Column::Server),
    ("url", Column::Url),
    ("referer", Column::Referer),
    ("referrer", Column::Referer),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Time,
    Object,
    Size,
    Client,
    Server,
    Url,
    Referer,
}

/// Objects that referers can name, at most: beyond it, later ones are unknown. 64 MiB of them.
const NAMEABLE: usize = 2 << 20;

pub(super) struct Csv {
    columns: Vec<Option<Column>>,
    headed: bool,
    /// Where both ids and URLs are given: the key of each URL, for the referers that name it.
    keys: HashMap<u64, u64>,
}

impl Csv {
    /// With a header, which is the first line.
    pub(super) fn headed() -> Self {
        Self { columns: Vec::new(), headed: false, keys: HashMap::new() }
    }

    /// libCacheSim's, whose columns have their usual order.
    pub(super) fn bare() -> Self {
        let columns = vec![Some(Column::Time), Some(Column::Object), Some(Column::Size)];
        Self { columns, headed: true, keys: HashMap::new() }
    }

    pub(super) fn line(&mut self, line: &[u8]) -> Line {
        if line.trim_ascii().is_empty() {
            return Line::Header;
        }
        let fields = split(line);
        if !self.headed {
            self.headed = true;
            return self.header(&fields);
        }
        let field =
            |wanted| self.columns.iter().position(|column| *column == Some(wanted)).and_then(|at| fields.get(at));
        let unknown = |wanted| field(wanted).map_or(0, |text| url::name_or_unknown(text));
        let Some(time) = field(Column::Time).and_then(|text| log::seconds(text.trim_ascii())) else {
            return Line::bad("no time in seconds in its column");
        };
        let size = match field(Column::Size) {
            Some(text) => match log::number(text.trim_ascii()) {
                Some(size) => size,
                None => return Line::bad("no number of bytes in its column"),
            },
            None => return Line::bad("no size: too few columns"),
        };
        let object = field(Column::Object).or_else(|| field(Column::Url)).map_or(&b""[..], |text| text.trim_ascii());
        if object.is_empty() {
            return Line::bad("no object in its column");
        }
        let mut request = Request {
            time,
            key: url::name(object),
            size,
            client: unknown(Column::Client),
            server: unknown(Column::Server),
            ..Request::default()
        };
        if let Some(target) = field(Column::Url).filter(|target| !target.is_empty()) {
            request.kind = if target.contains(&b'/') { url::kind(target) } else { Kind::Unknown };
            let server = field(Column::Server).map_or(&b""[..], |server| server);
            let named = absolute(server, target);
            let referer = field(Column::Referer).map(|referer| split_url(referer));
            if let Some(referer) = referer {
                request.referer = self.keys.get(&referer).copied().unwrap_or(0);
                if self.keys.len() < NAMEABLE {
                    self.keys.insert(named, request.key);
                }
            }
        }
        Line::Request(request)
    }

    fn header(&mut self, fields: &[Vec<u8>]) -> Line {
        let known = |field: &Vec<u8>| {
            let field = field.trim_ascii();
            NAMES.iter().find(|(name, _)| field.eq_ignore_ascii_case(name.as_bytes())).map(|(_, column)| *column)
        };
        self.columns = fields.iter().map(known).collect();
        let has = |column| self.columns.contains(&Some(column));
        if !has(Column::Time) || !has(Column::Size) || !(has(Column::Object) || has(Column::Url)) {
            return Line::bad("the first line does not name the columns time, size and obj_id or url");
        }
        Line::Header
    }
}

/// Server and path under one name, however the URL is written.
fn absolute(server: &[u8], target: &[u8]) -> u64 {
    match url::split(target) {
        Some((host, path)) => url::name(&[host, path].concat()),
        None => url::name(&[server, target].concat()),
    }
}

fn split_url(target: &[u8]) -> u64 {
    url::split(target).map_or(0, |(host, path)| url::name(&[host, path].concat()))
}

/// Fields of one line (RFC 4180, but that a line is a record).
fn split(line: &[u8]) -> Vec<Vec<u8>> {
    let mut fields = vec![Vec::new()];
    let mut quoted = false;
    let mut bytes = line.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        let Some(field) = fields.last_mut() else { break };
        match byte {
            b'"' if quoted && bytes.peek() == Some(&b'"') => {
                bytes.next();
                field.push(b'"');
            }
            b'"' if quoted => quoted = false,
            b'"' if field.is_empty() => quoted = true,
            b',' if !quoted => fields.push(Vec::new()),
            byte => field.push(byte),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_may_be_quoted() {
        assert_eq!(split(b"a,\"b,\"\"c\"\"\",,d\"e"), [&b"a"[..], b"b,\"c\"", b"", b"d\"e"]);
    }

    #[test]
    fn referers_name_the_object_of_an_earlier_line() {
        let mut csv = Csv::headed();
        assert_eq!(csv.line(b"time,obj_id,size,client,server,url,referer"), Line::Header);
        let Line::Request(page) = csv.line(b"1,7,10,me,a.org,/b/,") else { panic!("no request") };
        let Line::Request(part) = csv.line(b"2.5,8,20,me,a.org,/c.gif,http://a.org/b/") else { panic!("no request") };
        assert_eq!((page.referer, part.referer, part.time, part.size), (0, page.key, 2500, 20));
        assert_eq!((page.kind, part.kind), (Kind::Page, Kind::Part));
        assert!(matches!(csv.line(b"x,7,10"), Line::Bad(_)));
        assert!(matches!(csv.line(b"1,7"), Line::Bad(_)));
    }
}
