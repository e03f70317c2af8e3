//! MatrixMarket, tables, transactions.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((&how, bytes)) = data.split_first() else { return };
    let ending = ["mtx", "csv", "tsv", "txt", "dat"][usize::from(how % 5)];
    fednmf_fuzz::read(ending, bytes, how & 64 > 0, how & 128 > 0);
});
