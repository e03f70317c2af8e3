//! A predetermined order of merges: simulated (`--clock virtual`) or read from a file (`--replay`).

use std::path::Path;

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_comm::{ControlTag, Parties, PartyCommunicator};

const FILE: ControlTag = ControlTag::new("order of merges");

/// The order in which the server merges the parties' turns.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    order: MergeOrder,
    /// Finished turns of each party.
    turns: Vec<usize>,
    /// Merges so far.
    merges: usize,
}

#[derive(Debug, Clone, PartialEq)]
enum MergeOrder {
    /// Duration of a turn of each party; `None` for a party without data, which has no turns. The party whose turn ends
    /// first is merged next; ties go to the lower party.
    Virtual(Vec<Option<u64>>),
    /// The party of each merge.
    Recorded(Vec<usize>),
}

impl Schedule {
    /// Virtual time, where `cost` is the time of a turn of each party.
    pub fn of_time(cost: Vec<Option<u64>>) -> Self {
        Schedule { turns: vec![0; cost.len()], order: MergeOrder::Virtual(cost), merges: 0 }
    }

    /// Parses a `--replay` file: one party per line; comments start with `#`.
    ///
    /// # Errors
    /// If a line is not one of the `parties`, which the error names, or if there is no line.
    pub fn parse(text: &str, parties: usize) -> Result<Self> {
        let mut order = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let word = line.split('#').next().unwrap_or("").trim();
            if word.is_empty() {
                continue;
            }
            let party = word.parse().ok().filter(|&party: &usize| party < parties);
            order.push(party.ok_or_else(|| {
                let max = parties.saturating_sub(1);
                Error::input(format!("line {}: '{word}' is no party; they are 0 to {max}", at + 1))
            })?);
        }
        if order.is_empty() {
            return Err(Error::input("names no party; it must be a file of --record-order, with one party per line"));
        }
        Ok(Schedule { order: MergeOrder::Recorded(order), turns: vec![0; parties], merges: 0 })
    }

    /// Whether the order was recorded.
    pub fn is_recorded(&self) -> bool {
        matches!(self.order, MergeOrder::Recorded(_))
    }

    /// Whether no merge is left; virtual time never ends.
    pub fn is_over(&self) -> bool {
        matches!(&self.order, MergeOrder::Recorded(order) if self.merges >= order.len())
    }

    /// The next party and the number of its turn; `None` at the end of a recorded order.
    pub fn next(&mut self) -> Option<(usize, usize)> {
        let turns = &mut self.turns;
        let party = match &self.order {
            MergeOrder::Virtual(cost) => {
                let end = |party: usize| cost[party].map(|c| u128::from(c) * (turns[party] as u128 + 1));
                (0..cost.len()).filter_map(|p| Some((end(p)?, p))).min().map_or(0, |(_, p)| p)
            }
            MergeOrder::Recorded(order) => *order.get(self.merges)?,
        };
        self.merges += 1;
        turns[party] += 1;
        Some((party, turns[party] - 1))
    }

    /// Restarts and skips `merges` merges. Returns their parties.
    pub fn skip_to(&mut self, merges: usize) -> Vec<usize> {
        self.turns.fill(0);
        self.merges = 0;
        (0..merges).map_while(|_| self.next()).map(|(party, _)| party).collect()
    }
}

/// Reads the order from the file of `--replay` on rank 0 and broadcasts it. Collective.
///
/// # Errors
/// On all ranks, if the file cannot be read, or as [`Schedule::parse`].
pub fn replay(comm: &PartyCommunicator, path: &Path, parties: Parties) -> SharedResult<Schedule> {
    let text = comm.broadcast_settings(FILE, path).map_err(|e| format!("cannot be read ({e}); check the name"));
    let parsed = text.map_err(Error::input).and_then(|text| Schedule::parse(&text, parties.count));
    parsed.map_err(|e| e.at(format!("--replay {}", path.display())).on_all_ranks())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parties_report_as_often_as_they_are_fast() {
        let mut time = Schedule::of_time(vec![Some(30), Some(10), None, Some(10)]);
        let order: Vec<(usize, usize)> = (0..8).map_while(|_| time.next()).collect();
        // Turns of parties 1 and 3 end at 10, 20, 30, …; the turn of party 0 at 30. The lower party comes first.
        assert_eq!(order, [(1, 0), (3, 0), (1, 1), (3, 1), (0, 0), (1, 2), (3, 2), (1, 3)]);
        assert_eq!(time.skip_to(3), [1, 3, 1]);
        assert_eq!(time.next(), Some((3, 1)));
    }

    #[test]
    fn a_recorded_order_is_followed_to_its_end() {
        let mut replay = Schedule::parse("# of a run\n1\n0 \n\n1\n", 2).unwrap();
        assert_eq!([replay.next(), replay.next(), replay.next()], [Some((1, 0)), Some((0, 0)), Some((1, 1))]);
        assert!(replay.is_over() && replay.next().is_none());
        assert_eq!(replay.skip_to(9), [1, 0, 1]);
        for (text, words) in
            [("0\n2\n", "line 2: '2'"), ("0\n\nx", "line 3: 'x'"), ("-1", "line 1"), ("#\n", "no party")]
        {
            let message = Schedule::parse(text, 2).unwrap_err().message;
            assert!(message.contains(words), "{message}");
        }
    }
}
