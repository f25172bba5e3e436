//! How long objects are: a length, lengths between two, or those of web objects.

use std::{fmt, str::FromStr};

use picaflor_proxy::config::Size;
use serde::{Deserialize, Serialize};

use crate::synth::{Dice, web_sizes};

/// How long objects are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Sizes {
    /// The shortest.
    pub from: u64,
    /// The longest.
    pub to: u64,
    /// How likely those between them are.
    pub law: Law,
}

/// How likely lengths are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Law {
    /// All alike.
    #[default]
    Uniform,
    /// As those of web objects, of the workload `isp`: a median of 2.2 KiB, a mean of 7.8.
    Web,
}

/// The mean of lengths of web objects, in bytes.
const WEB_MEAN: u64 = 7980;
/// The longest of them.
const WEB_MOST: u64 = 1 << 20;

/// A mark takes 32 bytes, and there is one in each KB.
pub(super) const LEAST: u64 = 1 << 10;
/// A body is in memory once for each writer.
const MOST: u64 = 1 << 30;

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        if text == "web" {
            return Ok(Self::WEB);
        }
        let (from, to) = text.split_once('-').unwrap_or((text, text));
        let size = |text: &str| text.trim().parse::<Size>().map(|size| size.0);
        let (from, to) = (size(from)?, size(to)?);
        if !(LEAST..=MOST).contains(&from) || !(LEAST..=MOST).contains(&to) {
            return Err(format!("`{text}`: objects have 1 KiB to 1 GiB"));
        }
        if from > to {
            return Err(format!("`{text}`: the shortest comes first, as in 512K-1536K"));
        }
        Ok(Self { from, to, law: Law::Uniform })
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.from == self.to {
            _ if self.law == Law::Web => f.write_str("web"),
            true => write!(f, "{}", Size(self.from)),
            false => write!(f, "{}-{}", Size(self.from), Size(self.to)),
        }
    }
}

impl From<Sizes> for String {
    fn from(sizes: Sizes) -> Self {
        sizes.to_string()
    }
}

impl TryFrom<String> for Sizes {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<Self, String> {
        text.parse()
    }
}

impl Default for Sizes {
    /// 1 MiB.
    fn default() -> Self {
        Self { from: 1 << 20, to: 1 << 20, law: Law::Uniform }
    }
}

impl Sizes {
    /// Web objects.
    pub(super) const WEB: Self = Self { from: LEAST, to: WEB_MOST, law: Law::Web };

    /// The mean length.
    #[must_use]
    pub fn mean(&self) -> u64 {
        match self.law {
            Law::Uniform => self.from.midpoint(self.to),
            Law::Web => WEB_MEAN,
        }
    }

    /// One of them.
    pub(super) fn draw(&self, dice: &mut Dice) -> u64 {
        match self.law {
            Law::Uniform => self.from + dice.below(self.to - self.from + 1),
            Law::Web => web_sizes(self.to).draw(dice).max(self.from),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_refused() {
        let sizes: Sizes = "512K-1536K".parse().unwrap();
        assert_eq!((sizes.from, sizes.to, sizes.mean()), (512 << 10, 1536 << 10, 1 << 20));
        assert_eq!("10M".parse::<Sizes>().unwrap().to_string(), "10MiB");
        assert_eq!(sizes.to_string().parse(), Ok(sizes));
        for (text, why) in [("2M-1M", "comes first"), ("10", "1 KiB to"), ("x", "not a size"), ("2G", "1 GiB")] {
            assert!(text.parse::<Sizes>().unwrap_err().contains(why), "{text}");
        }
        let web: Sizes = "web".parse().unwrap();
        let mut dice = Dice::new(1, 1);
        let mut drawn: Vec<u64> = (0..100_000).map(|_| web.draw(&mut dice)).collect();
        drawn.sort_unstable();
        let mean = drawn.iter().sum::<u64>() as f64 / drawn.len() as f64;
        assert!((0.95..1.05).contains(&(mean / web.mean() as f64)), "{mean}");
        assert!((2200..2350).contains(&drawn[50_000]) && drawn[0] == LEAST, "{}", drawn[50_000]);
        assert!((900_000..=WEB_MOST).contains(&drawn[99_999]), "{}", drawn[99_999]);
        assert_eq!(web.to_string().parse(), Ok(web));
    }
}
