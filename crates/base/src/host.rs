//! The machine that a process runs on.

/// Its name, if it has one.
pub fn name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok().or_else(|| std::env::var("HOSTNAME").ok());
    name.map(|name| name.trim().to_string()).filter(|name| !name.is_empty())
}

/// The number of its cores, of which a process may be allowed fewer; `None` if unknown.
pub fn cores() -> Option<usize> {
    let all = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    Some(all.lines().filter(|line| line.starts_with("processor")).count()).filter(|count| *count > 0)
}

/// The vendor of its processor in the processor's spelling (GenuineIntel, AuthenticAMD); `None` if unknown.
pub fn processor_vendor() -> Option<String> {
    let all = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = all.lines().find_map(|line| line.strip_prefix("vendor_id"))?;
    Some(line.trim_start().strip_prefix(':')?.trim().to_string())
}
