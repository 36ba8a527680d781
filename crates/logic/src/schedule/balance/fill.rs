//! Weighted max-min sharing of one thing: what a fair, work-conserving node gives each of its children in the long run.

/// What each gets of `capacity`: in proportion to weight, none more than it demands, and nothing left over while somebody demands more.
pub(super) fn fill(capacity: f64, demands: &[f64], weights: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..demands.len()).filter(|&it| demands[it] > 0.0 && weights[it] > 0.0).collect();
    // Those first that need the least for their weight: once one isn't satisfied, none after it is.
    order.sort_by(|&a, &b| (demands[a] / weights[a]).total_cmp(&(demands[b] / weights[b])));
    let mut weight_left: f64 = order.iter().map(|&it| weights[it]).sum();
    let mut left = capacity;
    let mut gets = vec![0.0; demands.len()];
    for it in order {
        gets[it] = demands[it].min(left * weights[it] / weight_left);
        left = (left - gets[it]).max(0.0);
        weight_left = (weight_left - weights[it]).max(f64::MIN_POSITIVE);
    }
    gets
}

/// Adds up values by the number beside each.
pub(super) fn spread(count: usize, values: impl Iterator<Item = (usize, f64)>) -> Vec<f64> {
    let mut sums = vec![0.0; count];
    for (at, value) in values {
        sums[at] += value;
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_want_little_leave_the_rest_to_the_others() {
        let infinite = f64::INFINITY;
        assert_eq!(fill(90.0, &[infinite, infinite], &[2.0, 1.0]), [60.0, 30.0]);
        assert_eq!(fill(90.0, &[10.0, infinite, infinite], &[2.0, 3.0, 1.0]), [10.0, 60.0, 20.0]);
        assert_eq!(fill(90.0, &[10.0, 20.0], &[1.0, 1.0]), [10.0, 20.0]);
        assert_eq!(fill(90.0, &[0.0, infinite], &[5.0, 1.0]), [0.0, 90.0]);
    }
}
