//! MatrixMarket, tables, transactions, triples.
#![no_main]

use fednmf_fuzz::TRIPLES;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((&how, bytes)) = data.split_first() else { return };
    let ending = ["mtx", "csv", "tsv", "txt", "dat", TRIPLES][usize::from(how % 6)];
    fednmf_fuzz::read(ending, bytes, how & 64 > 0, how & 128 > 0);
});
