//! Axes: linear or logarithmic, with ticks at round numbers. A logarithmic one is a linear one of logarithms.

use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};

use super::short;

/// How values are spread over an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scale {
    /// Evenly.
    #[default]
    Linear,
    /// By their logarithm; what is not positive is left out.
    Log,
}

#[derive(Clone)]
pub(super) struct Axis {
    scale: Scale,
    pub(super) from: f64,
    pub(super) to: f64,
    ticks: Vec<f64>,
}

impl Axis {
    /// An axis on which all of these values have a place.
    pub(super) fn over(scale: Scale, values: impl Iterator<Item = f64>, from_zero: bool) -> Self {
        let (mut from, mut to) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter_map(|value| scale.place(value)) {
            (from, to) = (from.min(value), to.max(value));
        }
        if from > to {
            (from, to) = (0.0, 1.0);
        }
        if scale == Scale::Linear && from_zero {
            from = from.min(0.0);
        }
        if to - from < 1e-9 {
            (from, to) = (from - 0.5, to + 0.5);
        }
        let room = (to - from) * 0.04;
        if scale == Scale::Linear && from == 0.0 {
            to += room
        } else {
            (from, to) = (from - room, to + room)
        }
        let ticks = match scale {
            Scale::Linear => linear(from, to),
            Scale::Log => decades(from, to),
        };
        Self { scale, from, to, ticks }
    }

    /// Where a value is, if it has a place.
    pub(super) fn place(&self, value: f64) -> Option<f64> {
        self.scale.place(value)
    }

    /// The label at a place.
    pub(super) fn label(&self, place: f64) -> String {
        match self.scale {
            Scale::Linear => short(if place.abs() < (self.to - self.from) * 1e-9 { 0.0 } else { place }),
            Scale::Log => short(10_f64.powf(place)),
        }
    }
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, place: &f64, (low, high): (i32, i32)) -> i32 {
        let share = (place - self.from) / (self.to - self.from);
        low + (share * f64::from(high - low)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.from..self.to
    }
}

impl Scale {
    fn place(self, value: f64) -> Option<f64> {
        match self {
            Self::Linear => value.is_finite().then_some(value),
            Self::Log => (value > 0.0 && value.is_finite()).then(|| value.log10()),
        }
    }
}

/// Five to ten steps of 1, 2 or 5 times a power of ten.
fn linear(from: f64, to: f64) -> Vec<f64> {
    let rough = (to - from) / 7.0;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power).find(|step| *step >= rough).unwrap_or(power);
    let first = (from / step).ceil() as i64;
    (first..).map(|n| n as f64 * step).take_while(|tick| *tick <= to).collect()
}

/// Powers of ten; with twos and fives between them if they are few, and only some if they are many.
fn decades(from: f64, to: f64) -> Vec<f64> {
    let every = ((to - from) / 9.0).ceil().max(1.0) as i64;
    let whole = |step: i64| {
        let first = (from / step as f64).ceil() as i64 * step;
        (first..).step_by(step as usize).map(|n| n as f64).take_while(|tick| *tick <= to).collect::<Vec<_>>()
    };
    let ticks = whole(every);
    if ticks.len() > 2 {
        return ticks;
    }
    let low = from.floor() as i64;
    let all = (low..=to.ceil() as i64).flat_map(|n| [0.0, 2_f64.log10(), 5_f64.log10()].map(|m| n as f64 + m));
    all.filter(|tick| (from..=to).contains(tick)).collect()
}
