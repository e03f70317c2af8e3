//! What is still done when the process ends with an error, from whatever thread: records are closed and signed.

use std::sync::{Mutex, PoisonError};

type Task = Box<dyn FnOnce() + Send>;

static TASKS: Mutex<Vec<Task>> = Mutex::new(Vec::new());

/// Has [`close_records`] call `task`, which must not wait for another thread: that thread may be what has failed.
pub fn at_failure(task: impl FnOnce() + Send + 'static) {
    TASKS.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(task));
}

/// Does what was registered; before the process ends with an error.
pub fn close_records() {
    // Taken out first: a task that fails in turn finds nothing left to do.
    let tasks = TASKS.try_lock().map(|mut tasks| std::mem::take(&mut *tasks)).unwrap_or_default();
    tasks.into_iter().for_each(|task| task());
}
