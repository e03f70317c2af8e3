//! The communication graph: a connected graph of parties, the same on every rank.

use std::collections::VecDeque;
use std::fmt;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use fednmf_base::error::{Error, Result};
use fednmf_linalg::random::{Purpose, Stream};
use fednmf_privacy::transcript::hex;

use crate::parameters::{ParamType, ParamValue, Parsed};

/// An undirected, connected graph without loops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Graph {
    /// Each party's neighbours, ascending.
    pub neighbours: Vec<Vec<usize>>,
    /// Each edge once, lower party first, in groups of edges without a common party: the messages of a group can be
    /// sent in parallel.
    pub edges: Vec<(usize, usize)>,
    /// The maximum distance between two parties, in edges.
    pub diameter: usize,
}

/// A kind of graph.
#[derive(Debug, Clone, PartialEq)]
pub enum Topology {
    Ring,
    Grid,
    Complete,
    /// A random connected graph with `degree` neighbours on average.
    Random {
        degree: f64,
    },
    /// The edges listed in a file.
    File(PathBuf),
}

/// Parses a [`Topology`].
pub fn topology(text: &str) -> Parsed<Topology> {
    Ok(match text {
        "ring" => Topology::Ring,
        "grid" => Topology::Grid,
        "complete" => Topology::Complete,
        "random" => Topology::Random { degree: 3.0 },
        _ => match text.strip_prefix("random:degree=") {
            Some(degree) => {
                let degree = degree.parse().ok().filter(|degree| (0.0..1e9).contains(degree));
                Topology::Random { degree: degree.ok_or("the degree must be a number of at least 0")? }
            }
            None => Topology::File(
                PathBuf::parse(text).map_err(|must| format!("{must}, ring, grid, complete or random:degree=D"))?,
            ),
        },
    })
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Topology::Ring => f.write_str("ring"),
            Topology::Grid => f.write_str("grid"),
            Topology::Complete => f.write_str("complete"),
            Topology::Random { degree } => write!(f, "random:degree={degree}"),
            Topology::File(path) => path.display().fmt(f),
        }
    }
}

impl ParamType for Topology {
    fn value(&self) -> ParamValue {
        ParamValue::Text(self.to_string())
    }

    fn parse(text: &str) -> Parsed<Self> {
        topology(text)
    }
}

impl Topology {
    /// The graph of `n` parties; `listing` is the text of the file, if the edges come from one.
    ///
    /// # Errors
    /// If a line of the file is not an edge, or the graph is not connected.
    pub fn build(&self, n: usize, seed: u64, listing: &str) -> Result<Graph> {
        let mut pairs = Vec::new();
        match self {
            Topology::Ring if n > 1 => pairs.extend((0..n).map(|i| (i, (i + 1) % n))),
            Topology::Ring => {}
            Topology::Grid => {
                let rows = (1..=n).rfind(|r| r * r <= n && n.is_multiple_of(*r)).unwrap_or(1);
                let cols = n / rows;
                for i in 0..n {
                    pairs.extend((i % cols + 1 < cols).then_some((i, i + 1)));
                    pairs.extend((i + cols < n).then_some((i, i + cols)));
                }
            }
            Topology::Complete => pairs.extend((0..n).flat_map(|i| (0..i).map(move |j| (i, j)))),
            Topology::Random { degree } => random(n, *degree, seed, &mut pairs),
            Topology::File(path) => read(path, listing, n, &mut pairs)?,
        }
        Graph::new(n, pairs)
    }
}

/// A random spanning tree (each party of a random order joins an earlier one) and random further edges up to
/// n·degree/2.
fn random(n: usize, degree: f64, seed: u64, pairs: &mut Vec<(usize, usize)>) {
    let mut cursor = Stream::new(seed, Purpose::Topology, 0).at(0);
    let mut below = |n: usize| cursor.below(n as u64) as usize;
    let mut order: Vec<usize> = (0..n).collect();
    for i in (1..n).rev() {
        order.swap(i, below(i + 1));
    }
    pairs.extend((1..n).map(|i| (order[i], order[below(i)])));
    let mut others: Vec<(usize, usize)> = (0..n).flat_map(|i| (0..i).map(move |j| (j, i))).collect();
    others.retain(|&(i, j)| !pairs.contains(&(i, j)) && !pairs.contains(&(j, i)));
    let wanted = ((n as f64 * degree / 2.0).round() as usize).saturating_sub(pairs.len()).min(others.len());
    for _ in 0..wanted {
        pairs.push(others.swap_remove(below(others.len())));
    }
}

fn read(path: &Path, listing: &str, n: usize, pairs: &mut Vec<(usize, usize)>) -> Result<()> {
    for (at, line) in listing.lines().enumerate() {
        let line = line.split('#').next().unwrap_or("").trim();
        if line.is_empty() {
            continue;
        }
        let mut words = line.split_whitespace().map(|w| w.parse().ok().filter(|&p: &usize| p < n));
        match (words.next().flatten(), words.next().flatten(), words.next()) {
            (Some(i), Some(j), None) if i != j => pairs.push((i, j)),
            _ => {
                return Err(Error::input(format!(
                    "--topology {}: line {}: must be two different parties from 0 to {}, as in 0 1",
                    path.display(),
                    at + 1,
                    n.saturating_sub(1)
                )));
            }
        }
    }
    Ok(())
}

impl Graph {
    /// A digest of the edges.
    pub fn digest(&self) -> String {
        let mut edges = self.edges.clone();
        edges.sort_unstable();
        let mut hash = Sha256::new();
        edges.iter().flat_map(|&(a, b)| [a as u64, b as u64]).for_each(|party| hash.update(party.to_le_bytes()));
        hex(&hash.finalize()[..8])
    }

    fn new(n: usize, pairs: Vec<(usize, usize)>) -> Result<Self> {
        let mut edges: Vec<(usize, usize)> =
            pairs.into_iter().filter(|(i, j)| i != j).map(|(i, j)| (i.min(j), i.max(j))).collect();
        edges.sort_unstable();
        edges.dedup();
        let mut neighbours = vec![Vec::new(); n];
        for &(i, j) in &edges {
            neighbours[i].push(j);
            neighbours[j].push(i);
        }
        neighbours.iter_mut().for_each(|list| list.sort_unstable());
        let mut diameter = 0;
        for from in 0..n {
            let distance = distances(&neighbours, from);
            match distance.iter().position(Option::is_none) {
                None => diameter = diameter.max(distance.into_iter().flatten().max().unwrap_or(0)),
                Some(lost) => {
                    return Err(Error::input(format!(
                        "--topology: party {lost} cannot be reached from party {from}; the graph must be connected"
                    )));
                }
            }
        }
        // Greedy edge colouring: an edge gets the first colour that neither of its ends has.
        let mut taken: Vec<Vec<bool>> = vec![Vec::new(); n];
        let mut coloured: Vec<(usize, usize, usize)> = edges
            .iter()
            .map(|&(i, j)| {
                let has = |p: usize, c: usize| taken[p].get(c).copied().unwrap_or(false);
                let colour = (0..).find(|&c| !has(i, c) && !has(j, c)).expect("colours do not end");
                for p in [i, j] {
                    if taken[p].len() <= colour {
                        taken[p].resize(colour + 1, false);
                    }
                    taken[p][colour] = true;
                }
                (colour, i, j)
            })
            .collect();
        coloured.sort_unstable();
        Ok(Graph { neighbours, edges: coloured.into_iter().map(|(_, i, j)| (i, j)).collect(), diameter })
    }
}

/// Length of the shortest path from one party to each, in edges.
fn distances(neighbours: &[Vec<usize>], from: usize) -> Vec<Option<usize>> {
    let mut distance = vec![None; neighbours.len()];
    distance[from] = Some(0);
    let mut queue = VecDeque::from([(from, 0)]);
    while let Some((i, d)) = queue.pop_front() {
        for &j in &neighbours[i] {
            if distance[j].is_none() {
                distance[j] = Some(d + 1);
                queue.push_back((j, d + 1));
            }
        }
    }
    distance
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(text: &str, n: usize) -> Result<Graph> {
        topology(text).unwrap().build(n, 5, "")
    }

    #[test]
    fn graphs_have_their_degrees_and_diameters() {
        let ring = graph("ring", 6).unwrap();
        assert!(ring.neighbours.iter().all(|l| l.len() == 2) && ring.diameter == 3 && ring.edges.len() == 6);
        let grid = graph("grid", 12).unwrap();
        assert!(grid.edges.len() == 17 && grid.diameter == 5);
        assert_eq!(graph("grid", 7).unwrap().edges.len(), 6);
        let complete = graph("complete", 5).unwrap();
        assert!(complete.diameter == 1 && complete.edges.len() == 10);
        for n in [1, 2, 3, 10, 30] {
            let random = graph("random:degree=3", n).unwrap();
            assert_eq!(random.edges.len(), (n * 3).div_ceil(2).min(n * (n - 1) / 2), "{n}");
            assert_eq!(random, graph("random", n).unwrap());
        }
        assert_eq!((graph("ring", 1).unwrap().edges.len(), graph("ring", 2).unwrap().edges.len()), (0, 1));
        assert_eq!(graph("random:degree=0", 9).unwrap().edges.len(), 8);
    }

    #[test]
    fn edges_that_share_a_party_are_apart() {
        let graph = graph("ring", 8).unwrap();
        for four in graph.edges.chunks(4) {
            let mut ends: Vec<usize> = four.iter().flat_map(|&(i, j)| [i, j]).collect();
            ends.sort_unstable();
            assert_eq!(ends, (0..8).collect::<Vec<_>>());
        }
    }

    #[test]
    fn files_are_checked() {
        let file = |text: &str| Topology::File("g.txt".into()).build(3, 0, text);
        assert_eq!(file("0 1\n# all\n2 1 # last\n1 0\n").unwrap().edges, [(0, 1), (1, 2)]);
        for (text, word) in [("0 1", "party 2"), ("0 3", "line 1"), ("0 1\n1", "line 2"), ("1 1", "line 1")] {
            assert!(file(text).unwrap_err().message.contains(word), "{text}");
        }
    }

    #[test]
    fn topologies_are_written_as_they_are_read() {
        for text in ["ring", "grid", "complete", "random:degree=3", "random:degree=2.5", "edges.txt"] {
            assert_eq!(topology(text).unwrap().to_string(), text);
        }
        for wrong in ["random:degree=x", "random:degree=-1", "random:degree=nan", ""] {
            assert!(topology(wrong).is_err(), "{wrong}");
        }
    }
}
