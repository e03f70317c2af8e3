//! Where a sweep keeps its matrix: in the memory of each group of ranks, or in the file, if memory does not hold it.

use std::collections::BTreeMap;
use std::sync::Arc;

use fednmf_base::error::SharedResult;
use fednmf_comm::Parties;
use fednmf_data::memory::Node;
use fednmf_data::{Header, Layout};
use fednmf_methods::method::{ConfiguredMethod, MatrixShape, SweepSettings};

use super::method::{configure, sweepable};
use super::trial::layout;
use crate::plan::{Footprint, Storage, storage};
use crate::spec::Precision;

/// The methods of a sweep, and where its matrix is.
pub struct SweepPlan {
    /// The method of each k.
    pub methods: BTreeMap<usize, Arc<dyn ConfiguredMethod>>,
    /// Groups of ranks, each with the whole matrix; one if it is streamed, since each pass reads the whole file.
    pub groups: usize,
    pub storage: Storage,
}

/// The group of `rank`, and the number of its ranks.
pub fn group_of(rank: usize, ranks: usize, groups: usize) -> (usize, usize) {
    let number = rank * groups / ranks;
    let first = |number: usize| (number * ranks).div_ceil(groups);
    (number, first(number + 1) - first(number))
}

impl SweepPlan {
    /// The plan of runs with the numbers of components `ks`, which are not empty, for a matrix with this header in at most
    /// `most` groups, or in `requested` ones. `streaming` is the reason why the rows cannot be read from the file in each pass.
    ///
    /// # Errors
    /// On all ranks, if memory cannot hold the matrix, and it cannot be streamed.
    pub fn new(
        (method, ks, settings): (&Arc<dyn ConfiguredMethod>, &[usize], &SweepSettings),
        header: &Header,
        streaming: Result<(), String>,
        (most, requested): (usize, Option<usize>),
        nodes: &[Node],
    ) -> SharedResult<Self> {
        let ranks = nodes.iter().map(Node::ranks).sum();
        let largest = ks.iter().copied().max().unwrap_or(1);
        let &Header { rows, cols, sparse, .. } = header;
        let configured = |streamed| {
            let shape = MatrixShape { m: rows, n: cols, k: largest, sparse, streamed };
            configure(method, ks, shape, settings)
        };
        let footprint = |method| Footprint { k: largest, method, header, precision: Precision::F64, resuming: false };
        let methods = configured(false);
        let in_memory = footprint(&*methods[&largest]);
        let least = |groups: usize| {
            let in_memory = &in_memory;
            move |rank: usize| {
                let (_, size) = group_of(rank, ranks, groups);
                let layout: Layout = layout(in_memory.method, (rows, cols), size);
                // Each run has a copy of the data.
                let copy = header.least_bytes(&layout, size, size_of::<f64>());
                copy + in_memory.least_bytes(&layout, Parties { count: size, ranks: size }, 0)
            }
        };
        let fits = |groups: &usize| !nodes.iter().any(|node| node.needing(least(*groups)).lacks());
        let counts = if requested.is_some() { most..=most } else { 1..=most };
        if let Some(groups) = counts.rev().find(fits) {
            return Ok(SweepPlan { methods, groups, storage: Storage::InMemory });
        }
        let methods = configured(true);
        let besides_panels = footprint(&*methods[&largest]).besides_panels(ranks, sweepable());
        let besides_panels = match requested.filter(|&groups| groups > 1) {
            Some(groups) => Err(format!("--groups {groups} needs the matrix as often in memory; leave it out")),
            None => besides_panels.and_then(|besides| streaming.map(|()| besides)),
        };
        let storage = storage(nodes, least(if requested.is_some() { most } else { 1 }), besides_panels)?;
        Ok(SweepPlan { methods, groups: 1, storage })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_all_ranks() {
        for ranks in 1..9 {
            for groups in 1..=ranks {
                let of: Vec<(usize, usize)> = (0..ranks).map(|rank| group_of(rank, ranks, groups)).collect();
                for (number, size) in &of {
                    assert_eq!(of.iter().filter(|(other, _)| other == number).count(), *size, "{ranks} {groups}");
                }
                assert_eq!(of.last().map(|(number, _)| number + 1), Some(groups));
            }
        }
    }
}
