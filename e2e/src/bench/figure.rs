//! Several measurements of one quantity.

use serde::Serialize;

/// The median of some measurements, and their range.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Figure {
    /// The one in the middle; of an even number the mean of both.
    pub(super) median: f64,
    /// The least.
    pub(super) min: f64,
    /// The largest.
    pub(super) max: f64,
}

impl Figure {
    /// `None` without measurements.
    pub(super) fn of(mut measured: Vec<f64>) -> Option<Self> {
        measured.sort_by(f64::total_cmp);
        let (min, max) = (*measured.first()?, *measured.last()?);
        let upper = *measured.get(measured.len() / 2)?;
        let lower = *measured.get((measured.len() - 1) / 2)?;
        Some(Self {
            median: f64::midpoint(lower, upper),
            min,
            max,
        })
    }

    /// The same rounded to `places` decimal places, for tools.
    pub(super) fn rounded(self, places: i32) -> Self {
        let round = |value: f64| {
            let factor = 10_f64.powi(places);
            (value * factor).round() / factor
        };
        Self {
            median: round(self.median),
            min: round(self.min),
            max: round(self.max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle_whatever_the_order() {
        let odd = Figure::of(vec![3.0, 1.0, 2.0]).unwrap();
        assert_eq!((odd.median, odd.min, odd.max), (2.0, 1.0, 3.0));
        let even = Figure::of(vec![4.0, 1.0, 2.0, 3.0]).unwrap();
        assert_eq!((even.median, even.min, even.max), (2.5, 1.0, 4.0));
        assert_eq!(Figure::of(Vec::new()), None);
        let one = Figure::of(vec![1.23456]).unwrap().rounded(2);
        assert_eq!((one.median, one.max), (1.23, 1.23));
    }
}
