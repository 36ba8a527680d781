//! Locks for what is whole whenever it's let go. Whether what a lock guards is so is for who owns it to see to.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// What is behind a lock, also after somebody panicked who held it.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
