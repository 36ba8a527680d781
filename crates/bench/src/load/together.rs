//! One thread's loop over its generators: whose turn it is, when the window begins and ends for all, when to sleep.

use std::io;
use std::time::{Duration, Instant};

use super::generator::{Generator, Round};
use super::{Observer, Outcome, Plan};
use crate::sys::process::own_thread_cpu_time;
use crate::workload::mix::Mix;

/// Looking for work is cheaper than a timer that is nearer than this.
const SPIN_NS: u64 = 500_000;
/// Several generators look for completions this often when all of them may sleep.
const NAP: Duration = Duration::from_micros(50);

pub(super) fn run(parts: &[(&Plan, &Mix)], observer: &mut dyn Observer) -> io::Result<Vec<Outcome>> {
    let start = Instant::now();
    let generators = parts.iter().map(|(plan, mix)| Generator::new(plan, mix, start));
    let mut generators = generators.collect::<io::Result<Vec<_>>>()?;
    for generator in &mut generators {
        generator.open_connections()?;
    }
    observer.opened();
    generators.iter_mut().for_each(Generator::begin);
    let plan = parts[0].0;
    let window_start = Instant::now() + plan.warm_up;
    turns(&mut generators, start, window_start, |_| false)?;
    observer.window_begins();
    generators.iter_mut().for_each(Generator::begin_window);
    let cpu_at_begin = own_thread_cpu_time()?;
    turns(&mut generators, start, Instant::now() + plan.window, |all| all.iter().any(Generator::is_over))?;
    observer.window_ends();
    let cpu = own_thread_cpu_time()?.saturating_sub(cpu_at_begin);
    generators.iter_mut().for_each(Generator::end_window);
    drain(&mut generators, start, Instant::now() + plan.drain)?;
    generators.iter_mut().for_each(Generator::give_up_waiting);
    let outcomes = generators.into_iter().map(Generator::end);
    // Of the whole thread: how much of it is a generator's own, its busy time says.
    Ok(outcomes.map(|outcome| Outcome { cpu, ..outcome }).collect())
}

/// Gives everybody turns until `end`, or until `is_over`.
fn turns(
    generators: &mut [Generator<'_>],
    start: Instant,
    end: Instant,
    is_over: impl Fn(&[Generator<'_>]) -> bool,
) -> io::Result<()> {
    while Instant::now() < end && !is_over(generators) {
        let mut all = Round { has_worked: false, next_ns: (end - start).as_nanos() as u64, may_sleep: true };
        for generator in &mut *generators {
            let round = generator.round()?;
            all.has_worked |= round.has_worked;
            all.next_ns = all.next_ns.min(round.next_ns);
            all.may_sleep &= round.may_sleep;
        }
        if !all.has_worked {
            rest(generators, start, &all)?;
        }
    }
    Ok(())
}

/// Waits for the replies that are still to come.
fn drain(generators: &mut [Generator<'_>], start: Instant, end: Instant) -> io::Result<()> {
    while Instant::now() < end {
        let mut all = Round { has_worked: false, next_ns: (end - start).as_nanos() as u64, may_sleep: true };
        for generator in &mut *generators {
            let round = generator.drain_round()?;
            all.has_worked |= round.has_worked;
            all.may_sleep &= round.may_sleep;
        }
        if !all.has_worked {
            return Ok(());
        }
        rest(generators, start, &all)?;
    }
    Ok(())
}

/// Until something comes or is due: asleep if that pays.
fn rest(generators: &mut [Generator<'_>], start: Instant, round: &Round) -> io::Result<()> {
    let gap_ns = round.next_ns.saturating_sub(start.elapsed().as_nanos() as u64);
    if !round.may_sleep || gap_ns <= SPIN_NS || generators.iter_mut().any(|generator| generator.ring.has_work()) {
        std::hint::spin_loop();
        return Ok(());
    }
    let gap = Duration::from_nanos(gap_ns - SPIN_NS / 2);
    match generators {
        [generator] => generator.ring.enter_for(gap),
        // No call waits for several rings whose completions are made on entering them: poll(2) isn't woken.
        _ => {
            std::thread::sleep(gap.min(NAP));
            Ok(())
        }
    }
}
