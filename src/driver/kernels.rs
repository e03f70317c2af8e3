//! `--sparse-kernel auto`: times both kernels for sparse products once, and chooses the same on all ranks.

use serde_json::{Map, Value, json};

use super::settings::Settings;
use crate::comm::{CONTROL, Communicator};
use crate::error::Result;
use crate::linalg::{Block, Real, SparseKernel, SparseKernels};
use crate::output::checkpoint::Checkpoint;

/// MKL keeps its own copy of the matrix, so it must be faster by more than the noise of the timing.
const MKL_MUST_WIN_BY: f64 = 1.1;

/// The key of the chosen kernels in trace and checkpoint.
pub const USED: &str = "sparse_kernels_used";

/// The kernels of this run: those asked for; on resume those of the checkpoint, since the others round differently; else
/// for each product the one with the shorter time on the slowest rank. Collective.
///
/// # Errors
/// If MKL refuses a block.
pub fn choose<T: Real>(
    settings: &Settings,
    resuming: bool,
    blocks: &[Block<T>],
    comm: &Communicator,
) -> Result<SparseKernels> {
    if let Some(kernel) = settings.kernel {
        return Ok(kernel.into());
    }
    if resuming {
        let path = settings.checkpoint.as_ref().filter(|_| comm.is_root());
        // The resume itself reports a checkpoint that cannot be read.
        let found = path.and_then(|path| Checkpoint::resume(path).ok()).and_then(|(_, all)| named(&all));
        if let Some([mul, tmul]) = comm.broadcast_value(CONTROL, found) {
            return Ok(SparseKernels { mul: kernel(mul), tmul: kernel(tmul) });
        }
    }
    let sparse = blocks.iter().find_map(|block| if let Block::Sparse(x) = block { Some(x) } else { None });
    let mut seconds = [0.0; 4];
    let measured = sparse.filter(|x| x.matrix().nnz() > 0).map_or(Ok(()), |x| {
        let [own, mkl] = [SparseKernel::Native, SparseKernel::Mkl].map(|kernel| x.time_sample(kernel, settings.k));
        let ([mul, tmul], [mkl_mul, mkl_tmul]) = (own?, mkl?);
        seconds = [mul, tmul, mkl_mul, mkl_tmul];
        Ok(())
    });
    comm.agree_on_error(measured)?;
    comm.max(CONTROL, &mut seconds);
    let [mul, tmul, mkl_mul, mkl_tmul] = seconds;
    Ok(SparseKernels { mul: kernel(mkl_mul * MKL_MUST_WIN_BY < mul), tmul: kernel(mkl_tmul * MKL_MUST_WIN_BY < tmul) })
}

fn kernel(mkl: bool) -> SparseKernel {
    if mkl { SparseKernel::Mkl } else { SparseKernel::Native }
}

/// For trace and checkpoint.
pub fn names(kernels: SparseKernels) -> Value {
    json!(
        [kernels.mul, kernels.tmul].map(|kernel| if kernel == SparseKernel::Mkl { "mkl" } else { "native" }).join(",")
    )
}

/// Whether each of the two is MKL's, parsed from [`names`].
fn named(all: &Map<String, Value>) -> Option<[bool; 2]> {
    let (mul, tmul) = all.get(USED)?.as_str()?.split_once(',')?;
    Some([mul == "mkl", tmul == "mkl"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_survive_a_checkpoint() {
        for (mul, tmul) in [(false, false), (true, false), (false, true), (true, true)] {
            let mut all = Map::new();
            all.insert(USED.into(), names(SparseKernels { mul: kernel(mul), tmul: kernel(tmul) }));
            assert_eq!(named(&all), Some([mul, tmul]));
        }
        assert_eq!(named(&Map::new()), None);
    }
}
