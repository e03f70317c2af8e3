//! The context of a run, and `--kernel auto`: the kernels for products with the data that suit the processor, the same on
//! all ranks.

use serde_json::{Map, Value, json};

use fednmf_base::error::SharedResult;
use fednmf_base::host;
use fednmf_comm::{CONTROL, Communicator};
use fednmf_files::output::checkpoint::Checkpoint;
use fednmf_linalg::{Context, ContextOptions, ProductKernel, ProductKernels};

use super::settings::Settings;

/// The key of the chosen kernels in trace and checkpoint.
pub const USED: &str = "kernels_used";

/// The context of this run. Collective.
///
/// # Errors
/// On all ranks, if the system refuses the threads on one.
pub fn context(settings: &Settings, resuming: bool, comm: &Communicator) -> SharedResult<Context> {
    let kernels = choose(settings, resuming, comm);
    comm.agree_on_error(Context::new(ContextOptions { threads: settings.threads, kernels }))
}

/// The kernels of this run: the requested ones; on resume those of the checkpoint, because others round differently;
/// otherwise by the processor of rank 0, never by a clock. Collective.
fn choose(settings: &Settings, resuming: bool, comm: &Communicator) -> ProductKernels {
    if let Some(kernel) = settings.kernel {
        return kernel.into();
    }
    if resuming {
        let path = settings.checkpoint.as_ref().filter(|_| comm.is_root());
        // An unreadable checkpoint is reported by the resume itself.
        let found = path.and_then(|path| Checkpoint::open(path).ok()).and_then(|(_, all)| named(&all));
        if let Some([mul, tmul]) = comm.broadcast_value(CONTROL, found) {
            return ProductKernels { mul: kernel(mul), tmul: kernel(tmul) };
        }
    }
    let vendor = if comm.is_root() { host::processor_vendor() } else { None };
    suited(comm.broadcast_value(CONTROL, vendor).as_deref()).into()
}

/// The kernel for processors of a vendor: MKL on Intel processors, native ones elsewhere. On AMD, native kernels were
/// faster in most cases measured (`bench/roofline.rs`), and MKL selects other code for unknown vendors.
pub fn suited(vendor: Option<&str>) -> ProductKernel {
    kernel(vendor == Some("GenuineIntel"))
}

fn kernel(mkl: bool) -> ProductKernel {
    if mkl { ProductKernel::Mkl } else { ProductKernel::Native }
}

/// For trace and checkpoint.
pub fn names(kernels: ProductKernels) -> Value {
    json!(
        [kernels.mul, kernels.tmul].map(|kernel| if kernel == ProductKernel::Mkl { "mkl" } else { "native" }).join(",")
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
    fn the_vendor_decides() {
        let names = [Some("GenuineIntel"), Some("AuthenticAMD"), None].map(suited);
        assert_eq!(names, [ProductKernel::Mkl, ProductKernel::Native, ProductKernel::Native]);
    }

    #[test]
    fn kernels_survive_a_checkpoint() {
        for (mul, tmul) in [(false, false), (true, false), (false, true), (true, true)] {
            let mut all = Map::new();
            all.insert(USED.into(), names(ProductKernels { mul: kernel(mul), tmul: kernel(tmul) }));
            assert_eq!(named(&all), Some([mul, tmul]));
        }
        assert_eq!(named(&Map::new()), None);
    }
}
