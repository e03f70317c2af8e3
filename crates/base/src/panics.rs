//! Libraries that panic on damaged files: the file is at fault, and not this program.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static EXPECTED: Cell<bool> = const { Cell::new(false) };
}

/// Calls a library that may panic; `None` if it did. What it was working on must not be used any more.
///
/// ```
/// use fednmf_base::panics::caught;
/// assert_eq!(caught(|| 1 + 1), Some(2));
/// assert_eq!(caught(|| [1, 2][std::hint::black_box(7)]), None);
/// ```
pub fn caught<R>(call: impl FnOnce() -> R) -> Option<R> {
    let before = EXPECTED.replace(true);
    let found = catch_unwind(AssertUnwindSafe(call)).ok();
    EXPECTED.set(before);
    found
}

/// Whether a panic of this thread is caught, so that nothing is to be said of it.
pub fn are_caught() -> bool {
    EXPECTED.get()
}
