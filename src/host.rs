//! The machine that a process runs on.

/// Its name, if it has one.
pub fn name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok().or_else(|| std::env::var("HOSTNAME").ok());
    name.map(|name| name.trim().to_string()).filter(|name| !name.is_empty())
}
