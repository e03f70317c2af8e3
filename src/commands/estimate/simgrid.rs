//! Time-independent traces for SimGrid: what every rank computes and sends in the predicted iterations, to be replayed by
//! `smpirun -replay` on the model of a cluster.
//!
//! An amount of computing is its time in seconds at the measured rates, times [`SPEED`]; so the hosts of a platform compute
//! at 1 Gf. Short all-reduces are left to SimGrid. The other collectives are written as the messages of their usual
//! algorithms (Thakur, Rabenseifner and Gropp, 2005), since a replay has no communicators of a grid's rows and columns:
//! recursive doubling and halving among a power of two, a ring among others, and one after the other for an all-reduce.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use fednmf_base::error::{Error, Result};
use fednmf_data::Transfer;
use fednmf_methods::cost::{Cost, Message, Pattern, Side};

/// Units of computing in a second, "1Gf" in a platform file.
const SPEED: f64 = 1e9;

/// Bytes below which an all-reduce sends its vector whole, as Open MPI does.
const SHORT: u64 = 10_000;

/// The file that lists the traces of the ranks, for `smpirun -replay`.
pub const LIST: &str = "ranks.txt";

/// Messages and computing of the ranks in an iteration.
pub struct Iteration<'a> {
    pub cost: &'a Cost,
    /// Rows of V, and of U, that blocks touch.
    pub transfers: &'a [Vec<Transfer>; 2],
    /// Bytes of a row.
    pub row: usize,
    /// Computing time of a rank in seconds.
    pub seconds: f64,
}

/// Writes the trace of `iterations` iterations on `ranks` ranks into the directory, which must be new or empty.
///
/// # Errors
/// When the directory holds files already or cannot be written.
pub fn write(dir: &Path, iteration: &Iteration, ranks: usize, iterations: usize) -> Result<()> {
    let at = |path: &Path| {
        let shown = path.display().to_string();
        move |e: std::io::Error| Error::input(format!("--trace {shown}: cannot be written ({e})"))
    };
    fs::create_dir_all(dir).map_err(at(dir))?;
    if fs::read_dir(dir).map_err(at(dir))?.next().is_some() {
        return Err(Error::input(format!("--trace {}: holds files already; name a new directory", dir.display())));
    }
    let width = ranks.saturating_sub(1).to_string().len();
    let name = |rank: usize| format!("rank-{rank:0width$}.txt");
    for rank in 0..ranks {
        let path = dir.join(name(rank));
        let mut out = BufWriter::new(File::create(&path).map_err(at(&path))?);
        actions(&mut out, iteration, rank, iterations).and_then(|()| out.flush()).map_err(at(&path))?;
    }
    // Written last: if it exists, the trace can be replayed.
    let list: String = (0..ranks).map(|rank| name(rank) + "\n").collect();
    let path = dir.join(LIST);
    fs::write(&path, list).map_err(at(&path))
}

fn actions(out: &mut impl Write, iteration: &Iteration, rank: usize, iterations: usize) -> std::io::Result<()> {
    writeln!(out, "{rank} init")?;
    for _ in 0..iterations {
        writeln!(out, "{rank} compute {:.0}", iteration.seconds * SPEED)?;
        for message in &iteration.cost.messages {
            for _ in 0..message.times {
                match message.pattern {
                    Pattern::TouchedRows(side) => between(out, iteration, side, rank, false)?,
                    Pattern::TouchedSums(side) => between(out, iteration, side, rank, true)?,
                    _ => send(out, message, rank)?,
                }
            }
        }
    }
    writeln!(out, "{rank} finalize")
}

/// Writes the actions of `rank` for one message.
fn send(out: &mut impl Write, message: &Message, rank: usize) -> std::io::Result<()> {
    let bytes = message.vector.round() as u64;
    if message.group == 1 || bytes == 0 {
        return Ok(());
    }
    match message.pattern {
        Pattern::TouchedRows(_) | Pattern::TouchedSums(_) | Pattern::Local => Ok(()),
        Pattern::AllReduce | Pattern::PartySum if bytes < SHORT => {
            // The replay counts bytes, and an addition for each word of 8.
            writeln!(out, "{rank} allreduce {bytes} {}", bytes / 8)
        }
        Pattern::AllReduce | Pattern::PartySum => {
            scatter(out, message, rank)?;
            gather(out, message, rank)
        }
        // In a ring, as in most rounds.
        Pattern::Rounds(hosts) => match hosts.iter().position(|host| *host == rank) {
            Some(at) => {
                let [to, from] = [2, 1].map(|step| hosts[(at + step) % hosts.len()]);
                exchange(out, rank, &Exchange { to, from, bytes: bytes / message.times })
            }
            None => Ok(()),
        },
        Pattern::AllGather => gather(out, message, rank),
        Pattern::ReduceScatter => scatter(out, message, rank),
    }
}

/// Rows between their owners and the ranks that need them, or sums of them `back`: all messages at once.
fn between(out: &mut impl Write, iteration: &Iteration, side: Side, rank: usize, back: bool) -> std::io::Result<()> {
    let transfers = &iteration.transfers[usize::from(side == Side::U)];
    let ends = |t: &Transfer| if back { (t.needs, t.owner) } else { (t.owner, t.needs) };
    let bytes = |t: &Transfer| t.rows * iteration.row as u64;
    let sent = || transfers.iter().filter(|t| ends(t).0 == rank);
    for t in sent() {
        writeln!(out, "{rank} isend {} 0 {}", ends(t).1, bytes(t))?;
    }
    for t in transfers.iter().filter(|t| ends(t).1 == rank) {
        writeln!(out, "{rank} recv {} 0 {}", ends(t).0, bytes(t))?;
    }
    sent().try_for_each(|t| writeln!(out, "{rank} wait {rank} {} 0", ends(t).1))
}

fn gather(out: &mut impl Write, message: &Message, rank: usize) -> std::io::Result<()> {
    exchanges(message, rank).try_for_each(|step| exchange(out, rank, &step))
}

/// A gather backwards: halving begins with the largest part.
fn scatter(out: &mut impl Write, message: &Message, rank: usize) -> std::io::Result<()> {
    let mut steps: Vec<Exchange> = exchanges(message, rank).collect();
    steps.reverse();
    steps.iter().try_for_each(|step| exchange(out, rank, step))
}

/// A message to one rank, and a simultaneous one from another.
struct Exchange {
    to: usize,
    from: usize,
    bytes: u64,
}

fn exchange(out: &mut impl Write, rank: usize, step: &Exchange) -> std::io::Result<()> {
    let Exchange { to, from, bytes } = step;
    writeln!(out, "{rank} isend {to} 0 {bytes}\n{rank} recv {from} 0 {bytes}\n{rank} wait {rank} {to} 0")
}

/// The exchanges of `rank` that gather the vector of its group, each rank having an equal part of it at first.
fn exchanges(message: &Message, rank: usize) -> impl Iterator<Item = Exchange> {
    let Message { group, stride, vector, .. } = *message;
    let place = rank / stride % group;
    let first = rank - place * stride;
    let part = vector / group as f64;
    let doubling = group.is_power_of_two();
    let steps = if doubling { group.ilog2() as usize } else { group - 1 };
    (0..steps).map(move |step| {
        let at = |place: usize| first + place * stride;
        if doubling {
            let partner = at(place ^ (1 << step));
            Exchange { to: partner, from: partner, bytes: (part * (1u64 << step) as f64).round() as u64 }
        } else {
            let (to, from) = (at((place + 1) % group), at((place + group - 1) % group));
            Exchange { to, from, bytes: part.round() as u64 }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parts held by each rank after the exchanges of an all-gather, and the bytes that each has received.
    fn gathered(group: usize, stride: usize, ranks: usize) -> (Vec<Vec<bool>>, Vec<u64>) {
        let message = Message {
            stride,
            ..Message::shared_out("V", Pattern::AllGather, (ranks / group, group), 100 * ranks, 1).unwrap()
        };
        let steps: Vec<Vec<Exchange>> = (0..ranks).map(|rank| exchanges(&message, rank).collect()).collect();
        let mut held: Vec<Vec<bool>> = (0..ranks).map(|rank| (0..ranks).map(|r| r == rank).collect()).collect();
        let mut received = vec![0; ranks];
        for step in 0..steps[0].len() {
            let before = held.clone();
            for rank in 0..ranks {
                let Exchange { from, bytes, .. } = steps[rank][step];
                assert_eq!((steps[from][step].to, steps[from][step].bytes), (rank, bytes), "a send for each receive");
                received[rank] += bytes;
                held[rank].iter_mut().zip(&before[from]).for_each(|(mine, theirs)| *mine |= theirs);
            }
        }
        (held, received)
    }

    #[test]
    fn the_exchanges_of_a_group_reach_all_of_it_and_nobody_else() {
        for (group, stride, ranks) in [(4, 1, 8), (4, 2, 8), (3, 1, 6), (3, 2, 6), (5, 1, 5), (8, 4, 32)] {
            let (held, received) = gathered(group, stride, ranks);
            for rank in 0..ranks {
                let first = rank - rank / stride % group * stride;
                let members: Vec<usize> = (0..group).map(|place| first + place * stride).collect();
                let expected: Vec<bool> = (0..ranks).map(|r| members.contains(&r)).collect();
                assert_eq!(held[rank], expected, "rank {rank} of {ranks}, {group} with stride {stride}");
                assert_eq!(received[rank], 100 * (group as u64 - 1));
            }
        }
    }

    #[test]
    fn a_long_all_reduce_sends_all_but_the_own_part_twice() {
        for (ranks, words) in [(4, 4000), (6, 6000)] {
            let mut text = Vec::new();
            send(&mut text, &Message::all_reduce("sum", ranks, words, 8, 1), 1).unwrap();
            let text = String::from_utf8(text).unwrap();
            let sent: u64 = text
                .lines()
                .filter(|line| line.contains("isend"))
                .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
                .sum();
            assert_eq!(sent, (2 * 8 * words * (ranks - 1) / ranks) as u64, "{text}");
            assert!(!text.contains("allreduce"), "{text}");
        }
    }
}
