//! What spoils a measurement from outside, and how often one may be repeated for it: one rule for all servers.
//!
//! It looks at the generator and the hypervisor only, never at what the server did: else a server would be measured until it looks good.

/// A generator that sends one request of a hundred later than this measures itself.
const LATENESS_MAX_US: f64 = 500.0;
/// Processor time that the hypervisor may take from server and generator during a window: what the kernel's clock for it can't tell from none.
const STOLEN_MAX_S: f64 = 0.01;
/// One measurement is repeated so often at most.
const REPEATS_MAX: u32 = 2;
/// All of a run together: one repeat for so many measurements, so that a bad day doesn't take for ever.
const MEASUREMENTS_PER_REPEAT: u32 = 2;

/// What was seen from outside during a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Surroundings {
    /// How late the generator was, by its own clock, at p99.
    pub(crate) lateness_us: f64,
    /// Seconds of the server's and the generator's processors that other machines had.
    pub(crate) stolen_s: f64,
}

impl Surroundings {
    pub(crate) fn is_disturbed(&self) -> bool {
        // Seconds are differences of hundredths: half of one allows for their rounding.
        self.lateness_us > LATENESS_MAX_US || self.stolen_s > STOLEN_MAX_S + 0.005
    }
}

/// How many measurements there were, and how many of them were repeats.
#[derive(Default)]
pub(crate) struct Repeats {
    measured: u32,
    repeated: u32,
}

impl Repeats {
    /// `measure` until it wasn't disturbed, or until that was tried often enough; with the number of repeats. What was disturbed counts where
    /// nothing better came, the last one then, as any other choice would be one among results.
    ///
    /// # Errors
    /// The first that `measure` has.
    pub(crate) fn settle<T, E>(
        &mut self,
        mut measure: impl FnMut() -> Result<T, E>,
        surroundings: impl Fn(&T) -> Surroundings,
    ) -> Result<(T, u32), E> {
        self.measured += 1;
        let mut measured = measure()?;
        let mut repeats = 0;
        while surroundings(&measured).is_disturbed() && repeats < REPEATS_MAX && self.may_repeat() {
            repeats += 1;
            self.repeated += 1;
            measured = measure()?;
        }
        Ok((measured, repeats))
    }

    fn may_repeat(&self) -> bool {
        self.repeated < self.measured.div_ceil(MEASUREMENTS_PER_REPEAT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALM: Surroundings = Surroundings { lateness_us: 60.0, stolen_s: 0.01 };
    const LATE: Surroundings = Surroundings { lateness_us: 501.0, ..CALM };
    const STOLEN: Surroundings = Surroundings { stolen_s: 0.02, ..CALM };

    /// Measures what is given, one after the other; gives the number of the one that counts, and how often it was repeated.
    fn settle(repeats: &mut Repeats, all: &[Surroundings]) -> (usize, u32) {
        let mut numbers = 0..all.len();
        repeats.settle(|| numbers.next().ok_or(()), |&number| all[number]).expect("no more attempts than allowed")
    }

    #[test]
    fn late_or_stolen_is_disturbed() {
        assert_eq!([CALM, LATE, STOLEN].map(|seen| seen.is_disturbed()), [false, true, true]);
    }

    #[test]
    fn the_first_calm_one_counts_or_else_the_last() {
        let fresh = || Repeats { measured: 100, repeated: 0 };
        assert_eq!(settle(&mut fresh(), &[CALM, CALM]), (0, 0));
        assert_eq!(settle(&mut fresh(), &[LATE, CALM, CALM]), (1, 1));
        assert_eq!(settle(&mut fresh(), &[STOLEN, LATE, STOLEN, CALM]), (2, 2));
    }

    #[test]
    fn a_bad_day_has_an_end() {
        let mut repeats = Repeats::default();
        let in_all: u32 = (0..100).map(|_| 1 + settle(&mut repeats, &[LATE; 3]).1).sum();
        assert_eq!(in_all, 150);
    }
}
