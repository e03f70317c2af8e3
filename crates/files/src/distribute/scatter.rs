//! Files whose entries have positions and that cannot be split by byte range: rank 0 reads and scatters chunks, all ranks
//! decode them.

use fednmf_base::error::{Error, SharedResult};
use fednmf_comm::Communicator;
use fednmf_data::messages::{COUNTS, ENTRIES};

use crate::formats::file::{ChunkReader, MatrixFile};
use crate::formats::reader::EntrySink;

/// Approximate number of bytes that rank 0 sends per round.
const ROUND: usize = 64 << 20;

/// Rank 0 reads the file and sends one chunk per round to each rank, which passes the entries to `sink`. Collective.
///
/// # Errors
/// On all ranks, if the content of the file is invalid.
pub fn scatter(
    file: &MatrixFile,
    comm: &Communicator,
    sink: &mut impl EntrySink,
    progress: &mut dyn FnMut(f64),
) -> SharedResult<()> {
    let decoder = comm.agree_on_error(file.chunk_decoder())?;
    let mut reader = comm.agree_on_error(if comm.is_root() { file.chunk_reader().map(Some) } else { Ok(None) })?;
    let mut decoded = Ok(0);
    let mut found = [0u64];
    loop {
        let mut chunks: Vec<Vec<u8>> = vec![Vec::new(); comm.size()];
        let mut read = Ok(());
        let mut bytes = 0;
        for chunk in &mut chunks {
            if let (Some(reader), true) = (&mut reader, bytes < ROUND) {
                match reader.next_chunk() {
                    Ok(next) => *chunk = next.unwrap_or_default(),
                    Err(e) => read = Err(e),
                }
                bytes += chunk.len();
            }
        }
        // An error in the chunks of the previous round is shared here as well.
        found[0] += comm.agree_on_error(read.and(decoded))?;
        let mut more = [u32::from(chunks.iter().any(|c| !c.is_empty()))];
        comm.max(COUNTS, &mut more);
        if more[0] == 0 {
            break;
        }
        decoded = decoder.decode(&comm.all_to_all(ENTRIES, &chunks), sink);
        // Only rank 0 knows the progress, and only rank 0 displays it.
        progress(reader.as_ref().map_or(0.0, ChunkReader::done));
    }
    comm.sum(COUNTS, &mut found);
    file.check_count(found[0]).map_err(Error::on_all_ranks)
}
