//! The watchdog ends a run that is stuck. A launcher notices a rank that dies, but not one that hangs, a node that is gone
//! or a file system that does not answer.
//!
//! All work and every message that passes the communicator leave a mark here, which costs an uncontended lock. A thread of
//! each rank polls the marks: if there is no new one for half of the limit, it reports where the rank is, and at the limit
//! it ends the job. It counts time in its own ticks, so a job that is suspended as a whole is not stuck.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fednmf_base::error::EXIT_FAILED;
use fednmf_base::warning::{error, warn};

use super::transport;

/// The limit of a run that does not set one.
pub const DEFAULT_LIMIT: Duration = Duration::from_secs(600);

/// The limit of the last run.
static LIMIT: Mutex<Option<Duration>> = Mutex::new(Some(DEFAULT_LIMIT));

/// What a rank is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Activity {
    /// Its own work, in this phase.
    Working(&'static str),
    /// Waiting for a message of this kind.
    Waiting(&'static str),
}

#[derive(Debug, Clone, Copy)]
struct Marks {
    activity: Activity,
    /// Changes with every mark.
    count: u64,
    iteration: usize,
}

static MARKS: Mutex<Marks> = Mutex::new(Marks { activity: Activity::Working("starting"), count: 0, iteration: 0 });

/// Leaves a mark.
fn mark() -> MutexGuard<'static, Marks> {
    let mut marks = MARKS.lock().unwrap_or_else(PoisonError::into_inner);
    marks.count += 1;
    marks
}

/// An activity that lasts until the guard is dropped; the previous one is then restored.
#[derive(Debug)]
pub struct ActivityGuard {
    before: Activity,
}

impl ActivityGuard {
    fn new(activity: Activity) -> Self {
        ActivityGuard { before: std::mem::replace(&mut mark().activity, activity) }
    }
}

impl Drop for ActivityGuard {
    fn drop(&mut self) {
        mark().activity = self.before;
    }
}

/// Runs `f`, local work of this rank.
pub fn working<R>(phase: &'static str, f: impl FnOnce() -> R) -> R {
    let _during = ActivityGuard::new(Activity::Working(phase));
    f()
}

/// Runs `f`, which waits for other ranks.
pub fn waiting<R>(kind: &'static str, f: impl FnOnce() -> R) -> R {
    let _during = begin_waiting(kind);
    f()
}

/// Marks that this rank waits for others until the guard is dropped.
pub fn begin_waiting(kind: &'static str) -> ActivityGuard {
    ActivityGuard::new(Activity::Waiting(kind))
}

/// Sets the rank's phase, which is its activity whenever no other is reported.
pub fn enter(phase: &'static str) {
    mark().activity = Activity::Working(phase);
}

/// Marks progress within a long piece of work.
pub fn step() {
    drop(mark());
}

/// Marks that `done` iterations are complete.
pub fn iterations(done: usize) {
    mark().iteration = done;
}

/// The thread that polls; it ends when this is dropped.
#[derive(Debug)]
pub struct Watchdog {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Watches this rank from now on. `limit` is the longest time without a mark; `None` disables the watchdog.
    ///
    /// # Errors
    /// If the system refuses the thread.
    pub fn start(rank: usize, limit: Option<Duration>) -> std::io::Result<Watchdog> {
        *LIMIT.lock().unwrap_or_else(PoisonError::into_inner) = limit;
        let over = Arc::new(AtomicBool::new(false));
        let flag = over.clone();
        let poll = move |limit: Duration| {
            let tick = (limit / 40).clamp(Duration::from_millis(20), Duration::from_secs(1));
            let mut stall = Stall::new(limit, tick * 3);
            let mut last = Instant::now();
            while !flag.load(Ordering::Acquire) {
                std::thread::park_timeout(tick);
                let marks = *MARKS.lock().unwrap_or_else(PoisonError::into_inner);
                match stall.poll(marks.count, last.elapsed()) {
                    Verdict::Fine => {}
                    Verdict::Warn => warn(&message(rank, limit / 2, &marks, Some(limit))),
                    Verdict::End => {
                        error(&message(rank, limit, &marks, None));
                        end();
                    }
                }
                last = Instant::now();
            }
        };
        let thread = match limit {
            Some(limit) => Some(std::thread::Builder::new().name("watchdog".into()).spawn(move || poll(limit))?),
            None => None,
        };
        Ok(Watchdog { over, thread })
    }

    /// Watches this rank while it waits for the others at shutdown, with the limit of the previous run.
    ///
    /// # Errors
    /// If the system refuses the thread.
    pub fn for_shutdown(rank: usize) -> std::io::Result<Watchdog> {
        enter("ending");
        let limit = *LIMIT.lock().unwrap_or_else(PoisonError::into_inner);
        Watchdog::start(rank, limit)
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic in it would have ended the job.
            let _ = thread.join();
        }
    }
}

fn message(rank: usize, quiet: Duration, marks: &Marks, limit: Option<Duration>) -> String {
    let activity = match marks.activity {
        Activity::Working(phase) => format!("working on '{phase}'"),
        Activity::Waiting(kind) => format!("waiting for other ranks in '{kind}'"),
    };
    let (seconds, iteration) = (quiet.as_secs_f64(), marks.iteration);
    let end = match limit {
        Some(limit) => format!("the job ends after {} s (--stall-timeout)", limit.as_secs_f64()),
        None => "the job ends. Check the nodes, the network and the file systems; if the work really takes this long, raise \
                 --stall-timeout (0: no limit)"
            .into(),
    };
    format!("rank {rank} has made no progress for {seconds} s: {activity}, after iteration {iteration}; {end}")
}

/// Ends the job although another thread may hang inside the MPI library, which may then not respond either.
fn end() -> ! {
    const GRACE: Duration = Duration::from_secs(3);
    std::thread::spawn(|| {
        std::thread::sleep(GRACE);
        signal_hook::low_level::exit(EXIT_FAILED)
    });
    transport::abort(EXIT_FAILED)
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Fine,
    Warn,
    End,
}

/// Adds up the time without a mark.
struct Stall {
    limit: Duration,
    /// Maximum time that counts between two polls; a longer gap means that the whole process was suspended.
    most: Duration,
    count: u64,
    quiet: Duration,
    has_warned: bool,
}

impl Stall {
    fn new(limit: Duration, most: Duration) -> Self {
        Stall { limit, most, count: u64::MAX, quiet: Duration::ZERO, has_warned: false }
    }

    fn poll(&mut self, count: u64, passed: Duration) -> Verdict {
        if count != self.count {
            (self.count, self.quiet, self.has_warned) = (count, Duration::ZERO, false);
            return Verdict::Fine;
        }
        self.quiet += passed.min(self.most);
        if self.quiet >= self.limit {
            Verdict::End
        } else if self.quiet >= self.limit / 2 && !self.has_warned {
            self.has_warned = true;
            Verdict::Warn
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
    fn it_warns_once_and_ends_at_the_limit() {
        let mut stall = Stall::new(10 * SECOND, 2 * SECOND);
        let verdicts: Vec<Verdict> = (0..11).map(|_| stall.poll(7, SECOND)).collect();
        for (i, verdict) in verdicts.iter().enumerate() {
            let expected = [Verdict::Fine, Verdict::Warn, Verdict::End];
            assert_eq!(*verdict, expected[usize::from(i == 5) + 2 * usize::from(i == 10)], "poll {i}");
        }
    }

    #[test]
    fn a_mark_resets_the_clock_and_a_suspended_process_is_not_stuck() {
        let mut stall = Stall::new(10 * SECOND, 2 * SECOND);
        for count in 0..50 {
            assert_eq!(stall.poll(count, 9 * SECOND), Verdict::Fine);
            assert_eq!(stall.poll(count, 3600 * SECOND), Verdict::Fine, "two seconds of it count");
        }
        assert_eq!(stall.poll(49, SECOND), Verdict::Fine);
        assert_eq!(stall.poll(49, 2 * SECOND), Verdict::Warn);
        assert_eq!(stall.poll(50, SECOND), Verdict::Fine);
        assert_eq!(stall.poll(50, 2 * SECOND), Verdict::Fine);
    }

    #[test]
    fn the_message_names_rank_activity_and_iteration() {
        let marks = Marks { activity: Activity::Waiting("gram"), count: 1, iteration: 17 };
        let text = message(3, Duration::from_secs(300), &marks, Some(Duration::from_secs(600)));
        assert_eq!(
            text,
            "rank 3 has made no progress for 300 s: waiting for other ranks in 'gram', after iteration 17; the job ends after \
             600 s (--stall-timeout)"
        );
    }
}
