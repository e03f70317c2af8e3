//! .npy and idx.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((&how, bytes)) = data.split_first() else { return };
    fednmf_fuzz::read(["npy", "idx", "bin"][usize::from(how % 3)], bytes, how & 64 > 0, how & 128 > 0);
});
