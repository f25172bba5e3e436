//! How long the arm takes for a distance: a fit in two parts, or a measured table.
//!
//! Two parts: short seeks are limited by acceleration and go with the square root of the distance, long ones coast
//! and are linear (Ruemmler & Wilkes, "An introduction to disk drive modeling", IEEE Computer 27(3), 1994).

use serde::Deserialize;

/// A seek curve. Either the five numbers of a two-part fit, or `points`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeekProfile {
    /// Below `break`: milliseconds `a + b * sqrt(distance)`.
    pub a: Option<f64>,
    /// See `a`.
    pub b: Option<f64>,
    /// From `break` on: milliseconds `c + e * distance`.
    pub c: Option<f64>,
    /// See `c`.
    pub e: Option<f64>,
    /// The distance, in cylinders, at which the second part takes over.
    #[serde(rename = "break")]
    pub turn: Option<f64>,
    /// Measured pairs of distance and milliseconds, rising in distance; straight lines lie between them.
    #[serde(default)]
    pub points: Vec<(f64, f64)>,
    /// The curve's distances count in cylinders of the drive it was measured on: this many of them to one of ours.
    #[serde(default = "one")]
    pub stretch: f64,
    /// The curve's times are multiplied by this, to come to the mean that is known of this drive.
    #[serde(default = "one")]
    pub scale: f64,
}

fn one() -> f64 {
    1.0
}

impl SeekProfile {
    pub(crate) fn check(&self) -> Result<(), String> {
        let fit = [self.a, self.b, self.c, self.e, self.turn];
        let all = fit.iter().all(Option::is_some);
        let some = fit.iter().any(Option::is_some);
        if (some && !all) || all != self.points.is_empty() {
            return Err("seek: give all of a, b, c, e and break, or points, and not both".to_owned());
        }
        let numbers = fit.iter().flatten().chain([&self.stretch, &self.scale]);
        if !numbers.clone().all(|number| number.is_finite() && *number >= 0.0) || self.stretch * self.scale == 0.0 {
            return Err("seek: a number is negative, or stretch or scale is 0".to_owned());
        }
        if !self.points.windows(2).all(|two| two[0].0 < two[1].0) || self.points.iter().any(|point| point.1 < 0.0) {
            return Err("seek: points must rise in distance and have no negative times".to_owned());
        }
        Ok(())
    }

    /// Milliseconds for a distance of `cylinders`; 0 for none.
    #[must_use]
    pub fn millis(&self, cylinders: u32) -> f64 {
        if cylinders == 0 {
            return 0.0;
        }
        let distance = f64::from(cylinders) * self.stretch;
        let millis = match (self.a, self.b, self.c, self.e, self.turn) {
            (Some(a), Some(b), _, _, Some(turn)) if distance < turn => a + b * distance.sqrt(),
            (_, _, Some(c), Some(e), _) => c + e * distance,
            _ => self.interpolated(distance),
        };
        millis * self.scale
    }

    /// Outside the table the nearest two points are continued.
    fn interpolated(&self, distance: f64) -> f64 {
        match self.points.as_slice() {
            [] => 0.0,
            [(_, only)] => *only,
            points => {
                let above = points.partition_point(|point| point.0 <= distance).clamp(1, points.len() - 1);
                let ((d0, t0), (d1, t1)) = (points[above - 1], points[above]);
                (t0 + (t1 - t0) * (distance - d0) / (d1 - d0)).max(0.0)
            }
        }
    }

    /// The mean over all ordered pairs of different cylinders: what data sheets call the average seek.
    #[must_use]
    pub fn mean_millis(&self, cylinders: u32) -> f64 {
        let pairs = f64::from(cylinders) * (f64::from(cylinders) - 1.0);
        let sum: f64 = (1..cylinders).map(|d| 2.0 * f64::from(cylinders - d) * self.millis(d)).sum();
        sum / pairs
    }
}
