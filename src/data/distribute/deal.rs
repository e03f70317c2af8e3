//! Compressed files of scattered entries: one rank unpacks, all read.

use crate::comm::Communicator;
use crate::data::formats::file::{Dealer, Sink};
use crate::data::open::Placed;
use crate::data::{COUNTS, ENTRIES};
use crate::error::Result;

/// Bytes that rank 0 deals out in a round, about.
const ROUND: usize = 64 << 20;

/// Rank 0 unpacks a compressed file and deals it out to all ranks, a hand to each in a round. Collective.
///
/// # Errors
/// On all ranks, when the file does not hold what it should.
pub fn deal(file: &Placed, comm: &Communicator, sink: &mut impl Sink, progress: &mut dyn FnMut(f64)) -> Result<()> {
    let taker = comm.agree_on_error(file.info.taker())?;
    let mut dealer = comm.agree_on_error(if comm.is_root() { file.info.dealer().map(Some) } else { Ok(None) })?;
    let mut taken = Ok(0);
    let mut found = [0u64];
    loop {
        let mut hands: Vec<Vec<u8>> = vec![Vec::new(); comm.size()];
        let mut dealt = Ok(());
        let mut bytes = 0;
        for hand in &mut hands {
            if let (Some(dealer), true) = (&mut dealer, bytes < ROUND) {
                match dealer.hand() {
                    Ok(next) => *hand = next.unwrap_or_default(),
                    Err(e) => dealt = Err(e),
                }
                bytes += hand.len();
            }
        }
        // What went wrong with the hands of the round before is told here too.
        found[0] += comm.agree_on_error(dealt.and(taken))?;
        let mut more = [u32::from(hands.iter().any(|h| !h.is_empty()))];
        comm.max(COUNTS, &mut more);
        if more[0] == 0 {
            break;
        }
        taken = taker.take(&comm.all_to_all(ENTRIES, &hands), sink);
        // only rank 0, who shows it, knows
        progress(dealer.as_ref().map_or(0.0, Dealer::done));
    }
    comm.sum(COUNTS, &mut found);
    file.info.check_count(found[0])
}
