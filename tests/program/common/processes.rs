//! The processes of a job.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Waits until a file exists.
pub fn wait_for(path: &Path) {
    let start = Instant::now();
    while !path.exists() {
        assert!(start.elapsed() < Duration::from_secs(60), "no {}", path.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until no process has `path` in its command line: ranks outlive a killed launcher for a moment.
pub fn wait_until_gone(path: &Path) {
    let path = path.to_str().unwrap();
    let start = Instant::now();
    loop {
        let running = std::fs::read_dir("/proc").unwrap().flatten().any(|process| {
            let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(path)
        });
        if !running {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(10), "ranks outlive their launcher by more than 10 s");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The fednmf processes among `launcher` and its descendants.
pub fn ranks_of(launcher: u32) -> Vec<u32> {
    let mut stack = vec![launcher];
    let mut found = Vec::new();
    while let Some(pid) = stack.pop() {
        let below = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        stack.extend(below.split_whitespace().filter_map(|p| p.parse::<u32>().ok()));
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if name.trim() == "fednmf" {
            found.push(pid);
        }
    }
    found.sort_unstable();
    found
}

/// Sends a signal (`KILL`, say) to processes that must exist.
pub fn signal(name: &str, processes: &[u32]) {
    assert!(!processes.is_empty(), "no rank found to send {name} to");
    for process in processes {
        assert!(send(name, *process), "{name} to {process}");
    }
}

/// Sends a signal to a process that may have ended; whether it existed.
pub fn send(name: &str, process: u32) -> bool {
    let sent = Command::new("kill").arg(format!("-{name}")).arg(process.to_string()).output();
    sent.expect("kill is on the PATH").status.success()
}
