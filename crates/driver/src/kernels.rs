//! `--kernel auto`: the kernels for products with the data that suit the processor, the same on all ranks.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use fednmf_base::host;
use fednmf_comm::{CONTROL, Communicator};
use fednmf_linalg::{ProductKernel, ProductKernels};
use fednmf_privacy::Public;

/// The key of the chosen kernels in trace and checkpoint.
pub const USED: &str = "kernels_used";

/// The kernels of a run: the requested ones; when it resumes those of its checkpoint (`saved`), because others round
/// differently; otherwise by the vendor of the processor, never by timing.
pub fn choose(requested: Option<ProductKernel>, saved: Option<ProductKernels>, vendor: Option<&str>) -> ProductKernels {
    match (requested, saved) {
        (Some(kernel), _) => kernel.into(),
        (None, Some(kernels)) => kernels,
        (None, None) => suited(vendor).into(),
    }
}

/// The vendor of rank 0's processor. Collective.
pub fn vendor(comm: &Communicator) -> Option<String> {
    comm.broadcast_public(CONTROL, Vendor(if comm.is_root() { host::processor_vendor() } else { None })).0
}

/// The vendor of a processor.
#[derive(Serialize, Deserialize)]
struct Vendor(Option<String>);

impl Public for Vendor {
    const WHY: &'static str = "a property of the processor";
}

/// The kernel for processors of a vendor: MKL on Intel processors, native ones elsewhere. On AMD, native kernels were
/// faster in most cases measured (`bench/roofline.rs`), and MKL selects other code for unknown vendors.
pub fn suited(vendor: Option<&str>) -> ProductKernel {
    kernel(vendor == Some("GenuineIntel"))
}

/// The kernel that suits the processor of this machine.
pub fn of_processor() -> ProductKernel {
    suited(host::processor_vendor().as_deref())
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

/// The kernels of the run that wrote a checkpoint with these attributes, see [`names`].
pub fn saved(attributes: &Map<String, Value>) -> Option<ProductKernels> {
    let (mul, tmul) = attributes.get(USED)?.as_str()?.split_once(',')?;
    Some(ProductKernels { mul: kernel(mul == "mkl"), tmul: kernel(tmul == "mkl") })
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
            let kernels = ProductKernels { mul: kernel(mul), tmul: kernel(tmul) };
            all.insert(USED.into(), names(kernels));
            assert_eq!(saved(&all), Some(kernels));
        }
        assert_eq!(saved(&Map::new()), None);
    }

    #[test]
    fn a_request_comes_before_a_checkpoint_and_that_before_the_processor() {
        let (mkl, native) = (ProductKernel::Mkl, ProductKernel::Native);
        let intel = Some("GenuineIntel");
        assert_eq!(choose(Some(native), Some(mkl.into()), intel), native.into());
        assert_eq!(choose(None, Some(native.into()), intel), native.into());
        assert_eq!(choose(None, None, intel), mkl.into());
    }
}
