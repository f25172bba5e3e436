//! One line of a trace, in whichever of the formats that come in lines.

use super::{
    Format, Line,
    csv::Csv,
    dec::Dec,
    log::{self, Common},
};

/// The formats that come in lines.
pub(super) enum Parser {
    Squid,
    Common(Common),
    Dec(Dec),
    Csv(Box<Csv>),
}

impl Parser {
    pub(super) fn new(format: Format, site: Option<Box<[u8]>>) -> Option<Self> {
        Some(match format {
            Format::Squid => Self::Squid,
            Format::Common | Format::Combined | Format::Netscape => Self::Common(Common { format, site }),
            Format::Dec => Self::Dec(Dec::default()),
            Format::Csv => Self::Csv(Box::new(Csv::headed())),
            Format::LibcachesimCsv => Self::Csv(Box::new(Csv::bare())),
            Format::OracleGeneral | Format::Har => return None,
        })
    }

    pub(super) fn line(&mut self, line: &[u8]) -> Line {
        match self {
            Self::Squid if line.trim_ascii().is_empty() => Line::Header,
            Self::Common(_) if line.trim_ascii().is_empty() => Line::Header,
            Self::Squid => log::squid(line),
            Self::Common(common) => common.line(line),
            Self::Dec(dec) => dec.line(line),
            Self::Csv(csv) => csv.line(line),
        }
    }
}
