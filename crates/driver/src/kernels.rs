//! `--kernel auto`: the kernels for products with the data that suit processor and data, the same on all ranks.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use fednmf_base::error::{Error, Result};
use fednmf_base::host;
use fednmf_comm::{CONTROL, Communicator};
use fednmf_linalg::{ProductKernel, ProductKernels};
use fednmf_privacy::Public;

/// The key of the chosen kernels in trace and checkpoint.
pub const USED: &str = "kernels_used";

/// The kernels of a run: the requested ones; when it resumes those of its checkpoint (`saved`), because others round
/// differently; otherwise the `suited` ones, which no timing decides.
pub fn choose(
    requested: Option<ProductKernel>,
    saved: Option<ProductKernels>,
    suited: ProductKernel,
) -> ProductKernels {
    match (requested, saved) {
        (Some(kernel), _) => kernel.into(),
        (None, Some(kernels)) => kernels,
        (None, None) => suited.into(),
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

/// Smallest number of components with which MKL's products of dense data are faster on processors by Intel.
const WIDE: usize = 32;

/// The kernel for k components on processors of a vendor: MKL for dense data with many components on Intel's, native
/// ones elsewhere and in builds without MKL. Native kernels for sparse data are as fast as loops in C for AVX-512
/// (`bench/run kernels`), which were faster than MKL on both vendors; those for dense data were faster on AMD, and on
/// Intel for small k.
pub fn suited(vendor: Option<&str>, sparse: bool, k: usize) -> ProductKernel {
    let is_better = vendor == Some("GenuineIntel") && !sparse && k >= WIDE;
    let mkl = if is_better { ProductKernel::mkl().ok() } else { None };
    mkl.unwrap_or(ProductKernel::Native)
}

/// The kernel that suits the processor of this machine.
pub fn of_processor(sparse: bool, k: usize) -> ProductKernel {
    suited(host::processor_vendor().as_deref(), sparse, k)
}

/// For trace and checkpoint.
pub fn names(kernels: ProductKernels) -> Value {
    json!([kernels.mul, kernels.tmul].map(ProductKernel::name).join(","))
}

/// The kernels of the run that wrote a checkpoint with these attributes, see [`names`].
///
/// # Errors
/// If this build does not have them.
pub fn saved(attributes: &Map<String, Value>) -> Result<Option<ProductKernels>> {
    let names = attributes.get(USED).and_then(Value::as_str).and_then(|names| names.split_once(','));
    let Some((mul, tmul)) = names else { return Ok(None) };
    let lacking =
        |_| Error::input("its run used MKL's kernels, but this build has OpenBLAS; resume it with a build with MKL");
    let kernel = |name| match name {
        "mkl" => ProductKernel::mkl().map_err(lacking),
        _ => Ok(ProductKernel::Native),
    };
    Ok(Some(ProductKernels { mul: kernel(mul)?, tmul: kernel(tmul)? }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first is MKL's where the build has MKL.
    const ALL: &[ProductKernel] = ProductKernel::ALL;

    #[test]
    fn vendor_form_and_components_decide() {
        let names = [Some("GenuineIntel"), Some("AuthenticAMD"), None].map(|vendor| suited(vendor, false, 40));
        assert_eq!(names, [ALL[0], ProductKernel::Native, ProductKernel::Native]);
        let others = [(true, 40), (false, 10)].map(|(sparse, k)| suited(Some("GenuineIntel"), sparse, k));
        assert_eq!(others, [ProductKernel::Native; 2]);
    }

    #[test]
    fn kernels_survive_a_checkpoint() {
        for (mul, tmul) in ALL.iter().flat_map(|mul| ALL.iter().map(move |tmul| (*mul, *tmul))) {
            let mut all = Map::new();
            let kernels = ProductKernels { mul, tmul };
            all.insert(USED.into(), names(kernels));
            assert_eq!(saved(&all).unwrap(), Some(kernels));
        }
        assert_eq!(saved(&Map::new()).unwrap(), None);
    }

    #[test]
    fn a_checkpoint_with_kernels_of_another_build_is_refused() {
        let all = Map::from_iter([(USED.to_string(), "mkl,native".into())]);
        match ProductKernel::mkl() {
            Ok(mkl) => {
                assert_eq!(saved(&all).unwrap(), Some(ProductKernels { mul: mkl, tmul: ProductKernel::Native }));
            }
            Err(_) => assert!(saved(&all).unwrap_err().message.contains("OpenBLAS")),
        }
    }

    #[test]
    fn a_request_comes_before_a_checkpoint_and_that_before_the_processor() {
        let (first, native) = (ALL[0], ProductKernel::Native);
        assert_eq!(choose(Some(native), Some(first.into()), first), native.into());
        assert_eq!(choose(None, Some(native.into()), first), native.into());
        assert_eq!(choose(None, None, first), first.into());
    }
}
