//! What a connection between a site and the hub delivers, in pieces of any length.
#![no_main]

use fednmf_sites::frame::{Decoder, Frame, PIECE};

/// Bytes of the head of a frame.
const HEAD: usize = 5;
/// A sealed piece has its receiver, its number and the seal's tag too.
const LONGEST: usize = HEAD + 2 + 8 + PIECE + 16;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((&step, bytes)) = data.split_first() else { return };
    let mut decoder = Decoder::default();
    for part in bytes.chunks(usize::from(step) + 1) {
        decoder.buffer().extend(part);
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => comes_back(&frame),
                Ok(None) => break,
                Err(_) => return,
            }
        }
        assert!(decoder.buffer().len() <= bytes.len());
    }
});

fn comes_back(frame: &Frame) {
    let bytes = frame.encode();
    let mut decoder = Decoder::default();
    decoder.buffer().extend(&bytes);
    // JSON in other words may be longer than what arrived.
    if bytes.len() <= LONGEST {
        assert_eq!(decoder.next_frame().as_ref(), Ok(&Some(frame.clone())));
        assert_eq!(decoder.next_frame(), Ok(None));
    }
}
