//! .npz, and texts and arrays under gzip.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((&how, bytes)) = data.split_first() else { return };
    let ending = ["npz", "mtx.gz", "npy.gz", "csv.gz"][usize::from(how % 4)];
    fednmf_fuzz::read(ending, bytes, how & 64 > 0, how & 128 > 0);
});
