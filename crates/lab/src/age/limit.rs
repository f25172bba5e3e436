//! Limits for continuous integration: `fragments=2@age4` fails a run in which objects lie in more than two parts, in
//! the mean, at storage age 4.

use std::str::FromStr;

use super::{kind::Kind, run::Aged, run::Sample};

/// What may not be passed, and when.
#[derive(Debug, Clone, PartialEq)]
pub struct Limit {
    text: String,
    candidate: Option<Kind>,
    measure: Measure,
    most: f64,
    age: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Measure {
    Fragments,
    P99,
    Written,
}

const HOW: &str = "a limit is such as fragments=2@age4, p99=8@age4, written=1.3@age2, or sqlite:fragments=6@age4";

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}`: {HOW}");
        let (candidate, rest) = match text.split_once(':') {
            Some((name, rest)) => (Some(name.parse()?), rest),
            None => (None, text),
        };
        let (name, rest) = rest.split_once('=').ok_or_else(bad)?;
        let (most, age) = rest.split_once("@age").ok_or_else(bad)?;
        let measure = match name {
            "fragments" => Measure::Fragments,
            "p99" => Measure::P99,
            "written" => Measure::Written,
            _ => return Err(bad()),
        };
        let number = |text: &str| text.parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0).ok_or_else(bad);
        Ok(Self { text: text.into(), candidate, measure, most: number(most)?, age: number(age)? })
    }
}

impl Measure {
    fn of(self, sample: &Sample) -> Option<f64> {
        match self {
            Self::Fragments => sample.fragments.as_ref().map(|fragments| fragments.mean),
            Self::P99 => sample.fragments.as_ref().map(|fragments| fragments.p99 as f64),
            Self::Written => sample.written_per_byte,
        }
    }
}

impl Limit {
    /// Its age.
    #[must_use]
    pub fn age(&self) -> f64 {
        self.age
    }

    /// What is wrong with these runs by this limit, one line each. A run that did not reach its age, or of which the
    /// measure is not known, does not keep it.
    #[must_use]
    pub fn passed_by(&self, all: &[Aged]) -> Vec<String> {
        let mut lines = Vec::new();
        let meant = all.iter().filter(|aged| self.candidate.is_none_or(|kind| kind == aged.case.candidate));
        let mut any = false;
        for aged in meant {
            any = true;
            let label = aged.case.label();
            // Looks are a little late: the replacement that reaches an age passes it.
            let sample = aged.samples.iter().find(|sample| sample.age >= self.age - 1e-9);
            match sample.map(|sample| self.measure.of(sample)) {
                Some(Some(value)) if value <= self.most => {}
                Some(Some(value)) => lines.push(format!("{}: {label} has {value:.2}", self.text)),
                Some(None) => lines.push(format!("{}: of {label} this is not known", self.text)),
                None => {
                    let why = aged.ended.as_deref().unwrap_or("it was not aged so far");
                    lines.push(format!("{}: {label} has no such age: {why}", self.text));
                }
            }
        }
        if !any {
            lines.push(format!("{}: this candidate was not run", self.text));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::age::{run::Fragments, spec::Spec};

    fn aged(means: &[f64]) -> Aged {
        let case = Spec::default().cases().unwrap().remove(0);
        let sample = |(age, mean): (usize, &f64)| Sample {
            age: age as f64 * 1.001,
            fragments: Some(Fragments { mean: *mean, p99: 9, ..Fragments::default() }),
            ..Sample::default()
        };
        Aged { case, samples: means.iter().enumerate().map(sample).collect(), ended: None }
    }

    #[test]
    fn a_limit_is_passed_at_its_age_only() {
        let limit = |text: &str| text.parse::<Limit>().unwrap();
        let runs = [aged(&[1.0, 1.5, 2.5])];
        assert!(limit("fragments=2@age1").passed_by(&runs).is_empty());
        assert!(limit("fragments=2@age2").passed_by(&runs)[0].contains("2.50"));
        assert!(limit("p99=8@age0").passed_by(&runs)[0].contains("9.00"));
        assert!(limit("fragments=2@age4").passed_by(&runs)[0].contains("no such age"));
        assert!(limit("written=1@age0").passed_by(&runs)[0].contains("not known"));
        assert!(limit("sqlite:fragments=9@age1").passed_by(&runs)[0].contains("not run"));
        assert!(limit("folder:fragments=9@age1").passed_by(&runs).is_empty());
    }

    #[test]
    fn bad_limits_are_answered_with_good_ones() {
        for text in ["", "fragments", "fragments=2", "parts=2@age4", "fragments=x@age4", "fragments=2@4", "p99=-1@age1"]
        {
            assert!(text.parse::<Limit>().unwrap_err().contains("fragments=2@age4"), "{text}");
        }
        assert!("ntfs:fragments=2@age4".parse::<Limit>().unwrap_err().contains("picaflor-store"));
    }
}
