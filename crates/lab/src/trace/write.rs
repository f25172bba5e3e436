//! Writes a trace down, as the CSV that this lab and others read.

use std::io::{self, Write};

use super::{Kind, Request};

/// Writes requests as `time,obj_id,size,client,server,url,referer`: ids in hexadecimal, and for a URL only what tells
/// pages from their parts. Returns how many.
///
/// # Errors
/// Any error of `out`.
pub fn write_csv(requests: impl IntoIterator<Item = Request>, out: &mut impl Write) -> io::Result<u64> {
    writeln!(out, "time,obj_id,size,client,server,url,referer")?;
    let mut count = 0;
    for request in requests {
        let Request { time, key, size, client, server, referer, kind, version } = request;
        // A changed object is another one to a format that knows no versions.
        let id = |key: u64| if version == 0 { format!("{key:x}") } else { format!("{key:x}.{version}") };
        write!(out, "{}.{:03},{},{size},", time / 1000, time % 1000, id(key))?;
        let known = |value: u64| if value == 0 { String::new() } else { format!("{value:x}") };
        write!(out, "{},{},", known(client), known(server))?;
        match kind {
            Kind::Page => write!(out, "/{key:x}.html,")?,
            Kind::Part => write!(out, "/{key:x}.gif,")?,
            Kind::Unknown => write!(out, ",")?,
        }
        if referer != 0 {
            write!(out, "http://{}/{referer:x}.html", known(server))?;
        }
        writeln!(out)?;
        count += 1;
    }
    Ok(count)
}
