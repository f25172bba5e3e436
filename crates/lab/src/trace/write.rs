//! Writes a trace down, as the CSV that this lab and others read.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::Path,
};

use flate2::write::GzEncoder;

use super::{Kind, Request};
use crate::{Error, Result};

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

/// As [`write_csv`], into a file; one whose name ends in `.gz` or `.zst` is compressed.
///
/// # Errors
/// If it cannot be written.
pub fn save_csv(requests: impl IntoIterator<Item = Request>, path: &Path) -> Result<u64> {
    let file = BufWriter::new(File::create(path).map_err(Error::file("creating", path))?);
    let written = match path.extension().and_then(|extension| extension.to_str()) {
        Some("gz") => {
            let mut out = GzEncoder::new(file, flate2::Compression::default());
            write_csv(requests, &mut out).and_then(|count| out.finish()?.flush().map(|()| count))
        }
        Some("zst") => zstd::Encoder::new(file, 0).and_then(|mut out| {
            let count = write_csv(requests, &mut out)?;
            out.finish()?.flush().map(|()| count)
        }),
        _ => {
            let mut out = file;
            write_csv(requests, &mut out).and_then(|count| out.flush().map(|()| count))
        }
    };
    written.map_err(Error::file("writing", path))
}
