// SPDX-License-Identifier: Apache-2.0
//! Plays sequences, one per seed, on as many threads as there are processors.
//!
//! A sequence depends on its seed alone, so the number of threads changes nothing but the time it takes.

use std::io::IsTerminal as _;
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ferrolb_sim::Broken;
use nix::time::{ClockId, clock_gettime};

/// Which sequences.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sequences {
    pub(super) first: u64,
    pub(super) count: u64,
    /// As many as there are processors if not given.
    pub(super) threads: Option<NonZero<usize>>,
}

/// Counts that are summed up over sequences.
pub(super) trait Counts: Default + Send {
    fn add(&mut self, other: &Self);
}

/// What all sequences came to.
#[derive(Debug)]
pub(super) struct Played<T> {
    pub(super) tally: T,
    pub(super) broken: Vec<Broken>,
}

/// A sequence that takes longer than this of a processor has no end; to cut a broken one down, and a thousand nodes, may
/// take their time. Not by the clock on the wall: others may have most of the machine.
const ENDLESS: Duration = Duration::from_secs(300);

/// Plays the sequences until all are done or one breaks a rule. Ends the process if one has no end.
pub(super) fn play<T: Counts>(
    sequences: &Sequences,
    run: impl Fn(u64) -> Result<T, Box<Broken>> + Sync,
) -> Played<T> {
    let threads =
        sequences.threads.or_else(|| std::thread::available_parallelism().ok()).map_or(1, NonZero::get);
    let threads_used = u32::try_from(threads).unwrap_or(u32::MAX);
    let next = AtomicU64::new(0);
    let done = AtomicU64::new(0);
    let over = AtomicBool::new(false);
    let under_way: Vec<Mutex<Option<(u64, Duration)>>> = (0..threads).map(|_| Mutex::new(None)).collect();
    let note = |player: usize, what: Option<(u64, Duration)>| {
        if let Ok(mut slot) = under_way[player].lock() {
            *slot = what;
        }
    };
    let played = Mutex::new(Played { tally: T::default(), broken: vec![] });
    std::thread::scope(|scope| {
        let (next, done, over, played, note, run) = (&next, &done, &over, &played, &note, &run);
        let players: Vec<_> = (0..threads)
            .map(|player| {
                scope.spawn(move || {
                    let mut tally = T::default();
                    let mut broken = Vec::new();
                    while !over.load(Ordering::Relaxed) {
                        let n = next.fetch_add(1, Ordering::Relaxed);
                        if n >= sequences.count {
                            break;
                        }
                        let seed = sequences.first.wrapping_add(n);
                        let mourner = Mourner(seed);
                        note(player, Some((seed, used())));
                        match run(seed) {
                            Ok(counts) => tally.add(&counts),
                            Err(found) => {
                                over.store(true, Ordering::Relaxed);
                                broken.push(*found);
                            }
                        }
                        std::mem::forget(mourner);
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                    note(player, None);
                    // Only a thread that panics leaves it poisoned, and then the whole ends.
                    if let Ok(mut played) = played.lock() {
                        played.tally.add(&tally);
                        played.broken.append(&mut broken);
                    }
                })
            })
            .collect();
        let shows = std::io::stderr().is_terminal();
        while players.iter().any(|player| !player.is_finished()) {
            if shows {
                eprint!("\r{} of {} sequences ", done.load(Ordering::Relaxed), sequences.count);
            }
            for slot in &under_way {
                let begun = slot.lock().ok().and_then(|slot| *slot);
                let endless = |begun: Duration| used().saturating_sub(begun) / threads_used > ENDLESS;
                if let Some((seed, _)) = begun.filter(|(_, begun)| endless(*begun)) {
                    eprintln!("the sequence with seed {seed} has no end");
                    std::process::exit(1);
                }
            }
            std::thread::sleep(Duration::from_millis(if shows { 200 } else { 20 }));
        }
        if shows {
            eprint!("\r\x1b[K");
        }
    });
    let mut played = played.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    played.broken.sort_by_key(|broken| broken.seed);
    played
}

/// What this process has used of the processors.
fn used() -> Duration {
    // Linux always has this clock; without it nothing is endless.
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// Says which sequence it was that a panic ended.
struct Mourner(u64);

impl Drop for Mourner {
    fn drop(&mut self) {
        eprintln!("the sequence with seed {} ended in a panic", self.0);
    }
}
