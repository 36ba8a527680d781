//! How sure a mean is: batches of equal length, and Student's t.

/// A mean of batches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Estimate {
    pub(crate) mean: f64,
    /// Half of the 95 % confidence interval; infinite for fewer than two batches.
    pub(crate) half_width: f64,
}

/// Two-sided 95 % quantiles of Student's t for 1 to 30 degrees of freedom.
const STUDENT_T: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/// Batches follow one another on one server, each with a warm-up of its own, and count as independent.
pub(crate) fn estimate(batches: &[f64]) -> Option<Estimate> {
    let count = batches.len() as f64;
    let mean = batches.iter().sum::<f64>() / count;
    let freedom = batches.len().checked_sub(1)?;
    if freedom == 0 {
        return Some(Estimate { mean, half_width: f64::INFINITY });
    }
    let variance = batches.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / freedom as f64;
    let t = STUDENT_T.get(freedom - 1).copied().unwrap_or(1.96);
    Some(Estimate { mean, half_width: t * (variance / count).sqrt() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_narrows_with_batches_and_agreement() {
        assert_eq!(estimate(&[]), None);
        assert_eq!(estimate(&[2.0]), Some(Estimate { mean: 2.0, half_width: f64::INFINITY }));
        assert_eq!(estimate(&[2.0, 2.0]), Some(Estimate { mean: 2.0, half_width: 0.0 }));
        // By hand: mean 2, variance 1, half width 4.303 / sqrt(3).
        let three = estimate(&[1.0, 2.0, 3.0]).expect("batches");
        assert!((three.half_width - 4.303 / 3f64.sqrt()).abs() < 1e-9);
        let many = estimate(&[1.0, 2.0, 3.0].repeat(20)).expect("batches");
        assert!((many.half_width - 1.96 * (40.0 / 59.0 / 60.0f64).sqrt()).abs() < 1e-9);
    }
}
