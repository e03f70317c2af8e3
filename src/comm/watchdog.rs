//! The watch over a run that gets stuck: a rank that neither gets on with its work nor hears from the others says where it
//! is, and after the time that was given it ends the job. A launcher notices a rank that died; one that hangs, a node that
//! is gone or a file system that does not answer, nobody else would notice.
//!
//! Every piece of work and every message that passes the comm leaves a mark here, which costs a lock that nobody else
//! wants. A thread looks at the marks; it counts time by its own ticks, so a job that is suspended as a whole is not stuck.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::mpi;
use crate::error::EXIT_FAILED;

/// What a rank is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Working(&'static str),
    Waiting(&'static str),
}

#[derive(Debug, Clone, Copy)]
struct Marks {
    place: Place,
    /// Changes with every mark.
    count: u64,
    iteration: usize,
}

static MARKS: Mutex<Marks> = Mutex::new(Marks { place: Place::Working("starting"), count: 0, iteration: 0 });

fn marks() -> MutexGuard<'static, Marks> {
    MARKS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn during<R>(place: Place, f: impl FnOnce() -> R) -> R {
    let put = |place: Place| {
        let mut marks = marks();
        marks.count += 1;
        std::mem::replace(&mut marks.place, place)
    };
    let before = put(place);
    let result = f();
    put(before);
    result
}

/// Does `f`, which is this rank's own work.
pub fn working<R>(phase: &'static str, f: impl FnOnce() -> R) -> R {
    during(Place::Working(phase), f)
}

/// Does `f`, which waits for other ranks.
pub fn waiting<R>(kind: &'static str, f: impl FnOnce() -> R) -> R {
    during(Place::Waiting(kind), f)
}

/// From now on `phase` is what this rank does, whenever it is not within a piece of work or waiting.
pub fn enter(phase: &'static str) {
    let mut marks = marks();
    marks.count += 1;
    marks.place = Place::Working(phase);
}

/// Some of a long piece of work is done.
pub fn step() {
    marks().count += 1;
}

/// So many iterations are done.
pub fn iterations(done: usize) {
    let mut marks = marks();
    marks.count += 1;
    marks.iteration = done;
}

/// The thread that looks; it ends when this is dropped.
#[derive(Debug)]
pub struct Watchdog {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Watches this rank from now on: after half of `limit` without a mark it says where it is, after all of it the job
    /// ends. `None`: for ever.
    ///
    /// # Errors
    /// When the system refuses the thread.
    pub fn start(rank: usize, limit: Option<Duration>) -> std::io::Result<Watchdog> {
        let over = Arc::new(AtomicBool::new(false));
        let flag = over.clone();
        let look = move |limit: Duration| {
            let tick = (limit / 40).clamp(Duration::from_millis(20), Duration::from_secs(1));
            let mut stuck = Stuck::new(limit, tick * 3);
            let mut last = Instant::now();
            while !flag.load(Ordering::Acquire) {
                std::thread::park_timeout(tick);
                let marks = *marks();
                match stuck.look(marks.count, last.elapsed()) {
                    Verdict::Fine => {}
                    Verdict::Tell => eprintln!("fednmf: {}", told(rank, limit / 2, &marks, Some(limit))),
                    Verdict::End => {
                        eprintln!("fednmf: {}", told(rank, limit, &marks, None));
                        end();
                    }
                }
                last = Instant::now();
            }
        };
        let thread = match limit {
            Some(limit) => Some(std::thread::Builder::new().name("watch".into()).spawn(move || look(limit))?),
            None => None,
        };
        Ok(Watchdog { over, thread })
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It does not panic; and if it did, the job would have ended.
            let _ = thread.join();
        }
    }
}

fn told(rank: usize, for_so_long: Duration, marks: &Marks, limit: Option<Duration>) -> String {
    let place = match marks.place {
        Place::Working(phase) => format!("at work on '{phase}'"),
        Place::Waiting(kind) => format!("waiting for other ranks in '{kind}'"),
    };
    let (seconds, iteration) = (for_so_long.as_secs_f64(), marks.iteration);
    let end = match limit {
        Some(limit) => format!("at {} s the job ends (--stall-timeout)", limit.as_secs_f64()),
        None => {
            "the job ends. Does a node, a file system or the network not answer? If the work really takes so long, \
                 give --stall-timeout more seconds (0: no limit)"
                .into()
        }
    };
    format!("rank {rank} has not got on for {seconds} s: {place}, after iteration {iteration}; {end}")
}

/// Ends the job from beside a thread that may hang inside the MPI library, which then may not answer either.
fn end() -> ! {
    const PATIENCE: Duration = Duration::from_secs(3);
    std::thread::spawn(|| {
        std::thread::sleep(PATIENCE);
        signal_hook::low_level::exit(EXIT_FAILED)
    });
    mpi::abort(EXIT_FAILED)
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Fine,
    Tell,
    End,
}

/// Adds up the time without a mark.
struct Stuck {
    limit: Duration,
    /// The most that counts between two looks: more means that the whole process stood still.
    most: Duration,
    count: u64,
    quiet: Duration,
    has_told: bool,
}

impl Stuck {
    fn new(limit: Duration, most: Duration) -> Self {
        Stuck { limit, most, count: u64::MAX, quiet: Duration::ZERO, has_told: false }
    }

    fn look(&mut self, count: u64, passed: Duration) -> Verdict {
        if count != self.count {
            (self.count, self.quiet, self.has_told) = (count, Duration::ZERO, false);
            return Verdict::Fine;
        }
        self.quiet += passed.min(self.most);
        if self.quiet >= self.limit {
            Verdict::End
        } else if self.quiet >= self.limit / 2 && !self.has_told {
            self.has_told = true;
            Verdict::Tell
        } else {
            Verdict::Fine
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn it_tells_once_and_ends_at_the_limit() {
        let mut stuck = Stuck::new(10 * SECOND, 2 * SECOND);
        let said: Vec<Verdict> = (0..11).map(|_| stuck.look(7, SECOND)).collect();
        for (i, verdict) in said.iter().enumerate() {
            let expected = [Verdict::Fine, Verdict::Tell, Verdict::End];
            assert_eq!(*verdict, expected[usize::from(i == 5) + 2 * usize::from(i == 10)], "look {i}");
        }
    }

    #[test]
    fn a_mark_begins_anew_and_a_suspended_process_is_not_stuck() {
        let mut stuck = Stuck::new(10 * SECOND, 2 * SECOND);
        for count in 0..50 {
            assert_eq!(stuck.look(count, 9 * SECOND), Verdict::Fine);
            assert_eq!(stuck.look(count, 3600 * SECOND), Verdict::Fine, "two seconds of it count");
        }
        assert_eq!(stuck.look(49, SECOND), Verdict::Fine);
        assert_eq!(stuck.look(49, 2 * SECOND), Verdict::Tell);
        assert_eq!(stuck.look(50, SECOND), Verdict::Fine);
        assert_eq!(stuck.look(50, 2 * SECOND), Verdict::Fine);
    }

    #[test]
    fn what_is_told_names_rank_place_and_iteration() {
        let marks = Marks { place: Place::Waiting("gram"), count: 1, iteration: 17 };
        let text = told(3, Duration::from_secs(300), &marks, Some(Duration::from_secs(600)));
        assert_eq!(
            text,
            "rank 3 has not got on for 300 s: waiting for other ranks in 'gram', after iteration 17; at 600 s the job ends \
             (--stall-timeout)"
        );
    }
}
