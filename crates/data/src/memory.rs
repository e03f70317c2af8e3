//! Checks whether the data structures of a command fit into memory, before anything is allocated. Otherwise the system
//! would kill the process long after its start, without a message.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use fednmf_base::error::{Error, SharedError, SharedResult};
use fednmf_base::host;
use fednmf_base::units::{bytes, counted, thousands};
use fednmf_base::warning::warn;
use fednmf_comm::Communicator;

use crate::messages::MEMORY;

/// More bytes than any node has.
const UNLIMITED: f64 = 1e15;

/// The memory that the ranks of a node need, and the memory that it has.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Node {
    name: String,
    ranks: Vec<Range<usize>>,
    /// Bytes that its ranks need together.
    pub need: f64,
    /// Bytes that they may use.
    pub free: f64,
    /// Whether the user limited it.
    limited: bool,
}

impl Node {
    /// A node with these ranks and `free` bytes of free memory.
    pub fn new(name: &str, ranks: Range<usize>, free: f64) -> Self {
        Node { name: name.to_string(), ranks: vec![ranks], need: 0.0, free, limited: false }
    }

    /// Number of its ranks.
    pub fn ranks(&self) -> usize {
        self.ranks.iter().map(ExactSizeIterator::len).sum()
    }

    /// The same node, if rank r needs `of_rank(r)` bytes.
    #[must_use]
    pub fn needing(&self, of_rank: impl Fn(usize) -> f64) -> Self {
        let need = self.ranks.iter().cloned().flatten().map(of_rank).sum();
        Node { need, ..self.clone() }
    }

    /// Whether it lacks memory.
    pub fn lacks(&self) -> bool {
        self.need > self.free
    }

    /// Needed and usable memory of its ranks, as a clause for a message.
    pub fn lack(&self) -> String {
        let (name, ranks, [need, usable]) = (&self.name, counted(self.ranks(), "rank", "ranks"), self.amounts());
        format!("at least {need} of memory is needed on {name} (by {ranks}), but {usable}")
    }

    /// The same where the work is done without as much memory.
    pub fn would_need(&self) -> String {
        let (name, ranks, [need, usable]) = (&self.name, counted(self.ranks(), "rank", "ranks"), self.amounts());
        format!("in memory, {ranks} on {name} would need at least {need}, and {usable}")
    }

    /// The needed memory, and what is usable; exact where rounding hides that this is less.
    fn amounts(&self) -> [String; 2] {
        let rounded = [self.need, self.free].map(|x| bytes(x as u64));
        let exact = |x: f64| format!("{} bytes", thousands(x as usize));
        let [need, free] = if rounded[0] == rounded[1] { [self.need, self.free].map(exact) } else { rounded };
        [need, if self.limited { format!("--memory allows {free}") } else { format!("{free} is free") }]
    }

    /// What a user can do if a factorisation does not fit.
    pub fn remedy(&self) -> String {
        format!("use more nodes, a smaller part of the matrix or --precision f32, or {}", self.more())
    }

    fn more(&self) -> &'static str {
        if self.limited { "raise --memory" } else { "set --memory if more can be used" }
    }

    /// The error if work on a loaded matrix does not fit.
    pub fn refusal(&self) -> SharedError {
        let nodes = if self.ranks() > 1 { "more nodes or " } else { "" };
        let (lack, more) = (self.lack(), self.more());
        Error::input(format!("{lack}; use {nodes}a smaller part of the matrix, or {more}")).on_all_ranks()
    }
}

/// Refuses work that needs more memory than its nodes have, see [`nodes`]. Collective.
///
/// # Errors
/// On all ranks, naming the node.
pub fn check(need: f64, limit: Option<u64>, comm: &Communicator) -> SharedResult<()> {
    match nodes(need, limit, comm).iter().find(|node| node.lacks()) {
        None => Ok(()),
        Some(node) => Err(node.refusal()),
    }
}

/// As [`check`], for a rank with data of parties, whose size the needed memory reveals: the others learn only that there is
/// too little. Collective.
///
/// # Errors
/// On all ranks, naming the rank.
pub fn check_own(need: f64, limit: Option<u64>, comm: &Communicator) -> SharedResult<()> {
    let name = host::name().unwrap_or_else(|| "this machine".into());
    let free = limit.map_or_else(free, |limit| limit as f64);
    let rank = comm.rank();
    let node = Node { need, limited: limit.is_some(), ..Node::new(&name, rank..rank + 1, free) };
    if comm.size() == 1 && node.lacks() {
        return Err(node.refusal());
    }
    let enough = if node.lacks() {
        warn(&node.lack());
        Err(Error::input(format!(
            "rank {rank} lacks memory for its data, and says there how much; use a smaller part of the matrix, or set \
             --memory if more can be used"
        )))
    } else {
        Ok(())
    };
    comm.agree_on_error(enough)
}

/// The bytes that each rank can use on the node with the least memory per rank.
pub fn room(nodes: &[Node]) -> f64 {
    nodes.iter().map(|node| node.free / node.ranks() as f64).fold(f64::INFINITY, f64::min)
}

/// The nodes of all ranks; the same list on each rank. `need` is a lower bound of the bytes that this rank will hold;
/// `limit` replaces the free memory of a node, in bytes. Collective.
pub fn nodes(need: f64, limit: Option<u64>, comm: &Communicator) -> Vec<Node> {
    // Other owners need not know the machine's name.
    let node = match comm.has_owners() {
        true => (String::new(), comm.name_of(comm.rank())),
        false => (boot(), host::name().unwrap_or_else(|| "this machine".into())),
    };
    // Whole and finite, so that all ranks read the same number from JSON.
    let own = (node, need, limit.map_or_else(free, |limit| limit as f64).min(UNLIMITED).floor());
    // Only rank 0 needs the values of all ranks; the others need only the nodes.
    let all = if comm.has_owners() { comm.all_gather_value(MEMORY, &own) } else { comm.gather_value(MEMORY, &own) };
    // Nodes may have equal names, but not equal boot ids.
    let mut nodes = BTreeMap::<(String, String), Node>::new();
    let limited = limit.is_some();
    for (rank, (key, need, free)) in all.into_iter().enumerate() {
        let name = key.1.clone();
        let node = nodes.entry(key).or_insert(Node { name, ranks: Vec::new(), need: 0.0, free: UNLIMITED, limited });
        (node.need, node.free) = (node.need + need, node.free.min(free));
        match node.ranks.last_mut() {
            Some(last) if last.end == rank => last.end += 1,
            _ => node.ranks.push(rank..rank + 1),
        }
    }
    let nodes: Vec<Node> = nodes.into_values().collect();
    if comm.has_owners() { nodes } else { comm.broadcast_value(MEMORY, nodes) }
}

/// The boot id of this node.
fn boot() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}

/// Memory in bytes that processes on this node can still allocate, as reported by the system and limited by control groups
/// and by the process limits. Infinite if nothing is known.
pub fn free() -> f64 {
    let text = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    let system =
        field(&text(Path::new("/proc/meminfo")), "MemAvailable:").map_or(f64::INFINITY, |kilobytes| kilobytes * 1024.0);
    let groups = text(Path::new("/proc/self/cgroup"));
    let limits = text(Path::new("/proc/self/limits"));
    let address_space = limits.lines().find_map(|line| line.strip_prefix("Max address space"));
    let address_space = address_space.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    let groups = groups.lines().filter_map(group_of).map(|(root, path)| within(&root, &path));
    groups.fold(system.min(address_space.unwrap_or(f64::INFINITY)), f64::min)
}

/// The number after `name` in the text of a file in /proc.
fn field(text: &str, name: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

/// The root and the path of the control group in a line of /proc/self/cgroup, if its hierarchy can limit memory.
fn group_of(line: &str) -> Option<(PathBuf, String)> {
    let mut parts = line.splitn(3, ':');
    let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    let root = match controllers {
        "" => "/sys/fs/cgroup",
        list if list.split(',').any(|c| c == "memory") => "/sys/fs/cgroup/memory",
        _ => return None,
    };
    Some((PathBuf::from(root), path.trim_start_matches('/').to_string()))
}

/// The bytes that a control group and its parents leave free.
fn within(root: &Path, path: &str) -> f64 {
    let mut group = root.join(path);
    let mut least = f64::INFINITY;
    loop {
        for (limit, used) in [("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")] {
            let number = |name: &str| std::fs::read_to_string(group.join(name)).ok()?.trim().parse::<f64>().ok();
            // "max" is not a number and means no limit. Inactive file pages are reclaimable, so they do not count as used.
            if let Some(limit) = number(limit) {
                let statistics = std::fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
                let cache = field(&statistics, "inactive_file ").unwrap_or(0.0);
                least = least.min(limit - (number(used).unwrap_or(0.0) - cache).max(0.0));
            }
        }
        if group == root || !group.pop() {
            return least;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_that_are_rounded_alike_are_told_exactly() {
        let text =
            |need: f64| Node { need, limited: true, ..Node::new("here", 0..1, 1_258_291.0) }.refusal().message.clone();
        assert!(
            text(1_258_300.0).contains("1,258,300 bytes of memory")
                && text(1_258_300.0).contains("allows 1,258,291 bytes")
        );
        assert!(text(3e6).contains("2.9 MiB") && text(3e6).contains("allows 1.2 MiB") && !text(3e6).contains("nodes"));
    }

    #[test]
    fn groups_are_found() {
        assert_eq!(group_of("0::/user/x"), Some((PathBuf::from("/sys/fs/cgroup"), "user/x".into())));
        assert_eq!(group_of("5:memory:/a"), Some((PathBuf::from("/sys/fs/cgroup/memory"), "a".into())));
        assert_eq!(group_of("4:cpu:/a"), None);
        assert_eq!(field("MemTotal: 5 kB\nMemAvailable:   17 kB\n", "MemAvailable:"), Some(17.0));
        assert!(free() > 0.0);
    }

    #[test]
    fn a_limit_of_a_group_holds_for_all_below() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("a/b");
        std::fs::create_dir_all(&inner).unwrap();
        let write = |path: &str, text: &str| std::fs::write(dir.path().join(path), text).unwrap();
        assert_eq!(within(dir.path(), "a/b"), f64::INFINITY);
        write("a/b/memory.max", "max\n");
        write("a/memory.max", "1000\n");
        write("a/memory.current", "900\n");
        write("a/memory.stat", "anon 1\ninactive_file 300\n");
        assert_eq!(within(dir.path(), "a/b"), 400.0);
    }
}
