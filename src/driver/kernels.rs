//! `--sparse-kernel auto`: which kernel multiplies the sparse blocks, by a stopwatch, once, the same on all ranks.

use serde_json::{Map, Value, json};

use super::CONTROL;
use super::settings::Settings;
use crate::comm::Communicator;
use crate::error::Result;
use crate::linalg::{Block, Real, SparseKernel, SparseKernels};
use crate::output::checkpoint::Checkpoint;

/// MKL keeps a copy of the matrix in a form of its own, so it must be faster by more than the noise.
const MKL_MUST_WIN_BY: f64 = 1.1;

/// The name under which trace and checkpoint have them.
pub const USED: &str = "sparse_kernels_used";

/// The kernels of this run: those asked for; on resume those that the run began with, since the other ones round
/// differently; else for each product the one that is faster on the slowest rank's sample. Collective.
///
/// # Errors
/// When MKL refuses a block.
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
        // A checkpoint that cannot be read is reported by the resume itself.
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

/// Whether each of the two is MKL's, from what [`names`] wrote.
fn named(all: &Map<String, Value>) -> Option<[bool; 2]> {
    let (mul, tmul) = all.get(USED)?.as_str()?.split_once(',')?;
    Some([mul == "mkl", tmul == "mkl"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_checkpoint_says_is_what_was_used() {
        for (mul, tmul) in [(false, false), (true, false), (false, true), (true, true)] {
            let mut all = Map::new();
            all.insert(USED.into(), names(SparseKernels { mul: kernel(mul), tmul: kernel(tmul) }));
            assert_eq!(named(&all), Some([mul, tmul]));
        }
        assert_eq!(named(&Map::new()), None);
    }
}
