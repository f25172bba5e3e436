//! Sizes (`512 MiB`, `4GB`, `65536`) and times (`500ms`, `10s`, `5 min`, `1h`, `1d`) as people write them.

use std::{fmt, str::FromStr, time::Duration};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use picaflor::{Durability, Options};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// A length of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

impl Span {
    /// So many seconds.
    pub const fn secs(n: u64) -> Self {
        Self(Duration::from_secs(n))
    }

    /// Whole milliseconds.
    pub fn millis(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }
}

/// What a crash may cost, as people write it: `none`, `every-put`, or a time.
pub fn durability(text: &str) -> Option<Durability> {
    match text {
        "none" => Some(Durability::None),
        "every-put" => Some(Durability::EveryPut),
        time => time.parse::<Span>().ok().map(|time| Durability::Bounded { time: time.0, puts: u64::MAX }),
    }
}

/// Which deletes a crash may undo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deletes {
    /// None: each is durable when it returns.
    Every,
    /// Those of this much time.
    Within(Duration),
}

impl Deletes {
    /// As people write it: `every-delete`, or a time. There is no `none`: what was deleted must not come back for ever.
    pub fn read(text: &str) -> Option<Self> {
        match text {
            "every-delete" => Some(Self::Every),
            time => time.parse::<Span>().ok().map(|time| Self::Within(time.0)),
        }
    }

    /// As durable as puts are; where no put is promised anything, within a second.
    pub fn like(puts: Durability) -> Self {
        match puts {
            Durability::EveryPut => Self::Every,
            Durability::Bounded { time, .. } => Self::Within(time),
            _ => Self::Within(Duration::from_secs(1)),
        }
    }

    /// Opens a store with this bound.
    pub fn bind(self, options: &mut Options) {
        match self {
            Self::Every => options.delete_count = 1,
            Self::Within(time) => options.delete_time = time,
        }
    }
}

impl fmt::Display for Deletes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Every => f.write_str("every-delete"),
            Self::Within(time) => Span(*time).fmt(f),
        }
    }
}

const SIZES: [(&str, u64); 5] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];
const TIMES: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1)];

/// Largest size: what a file can say in either way.
const MOST_BYTES: u64 = 9_000_000_000_000_000_000;

/// The digits, and the unit in lower case.
fn split(text: &str) -> (String, String) {
    let text = text.trim();
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
    (text[..at].replace('_', ""), text[at..].trim().to_ascii_lowercase())
}

/// So many of a unit of `factor`, up to `most`. Whole numbers stay what they are, also where a float has no room.
fn times(digits: &str, factor: u64, most: u64) -> Option<u64> {
    let product = match digits.parse::<u64>() {
        Ok(whole) => whole.checked_mul(factor)?,
        Err(_) => (digits.parse::<f64>().ok()? * factor as f64) as u64,
    };
    (product <= most).then_some(product)
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is not a size such as `512 MiB` or `4GB`");
        let (number, unit) = split(text);
        let factor: u64 = match unit.as_str() {
            "" | "b" => 1,
            "k" | "kib" => 1 << 10,
            "m" | "mib" => 1 << 20,
            "g" | "gib" => 1 << 30,
            "t" | "tib" => 1 << 40,
            "kb" => 1000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            "tb" => 1_000_000_000_000,
            _ => return Err(bad()),
        };
        times(&number, factor, MOST_BYTES).map(Self).ok_or_else(bad)
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is not a time such as `500ms`, `10s`, `5min`, `1h` or `1d`");
        let (number, unit) = split(text);
        let factor = match unit.as_str() {
            "ms" => 1,
            "s" => 1000,
            "m" | "min" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "" if number.parse() == Ok(0.0) => 1,
            _ => return Err(bad()),
        };
        let millis = times(&number, factor, 300_000_000_000_000).ok_or_else(bad)?;
        Ok(Self(Duration::from_millis(millis)))
    }
}

fn show(f: &mut fmt::Formatter<'_>, n: u64, units: &[(&str, u64)]) -> fmt::Result {
    let (name, factor) =
        units.iter().copied().find(|(_, factor)| n >= *factor && n.is_multiple_of(*factor)).unwrap_or(("", 1));
    write!(f, "{}{name}", n / factor)
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(f, self.0, &SIZES)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(f, self.millis(), &TIMES)
    }
}

macro_rules! textual {
    ($name:ident, $expecting:literal, $integer:expr) => {
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl de::Visitor<'_> for Visitor {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expecting)
                    }
                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$name, E> {
                        text.parse().map_err(E::custom)
                    }
                    fn visit_i64<E: de::Error>(self, n: i64) -> Result<$name, E> {
                        let integer: fn(u64) -> Option<$name> = $integer;
                        u64::try_from(n).ok().and_then(integer).ok_or_else(|| E::custom(concat!("not ", $expecting)))
                    }
                }
                deserializer.deserialize_any(Visitor)
            }
        }
    };
}

textual!(Size, "a size such as \"512 MiB\" or a number of bytes", |n| (n <= MOST_BYTES).then_some(Size(n)));
textual!(Span, "a time such as \"10s\"", |n| (n == 0).then_some(Span::secs(0)));

/// The networks of this machine alone.
pub(super) fn loopback() -> Vec<IpNet> {
    let v4 = Ipv4Net::new_assert([127, 0, 0, 0].into(), 8);
    let v6 = Ipv6Net::new_assert(std::net::Ipv6Addr::LOCALHOST, 128);
    vec![IpNet::V4(v4), IpNet::V6(v6)]
}

/// What clients may ask of the cache in front of an origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClientDirectives {
    /// The origin is asked where they want it.
    #[default]
    Obey,
    /// What is fresh is the answer.
    Ignore,
}
