//! The command line, and what it names: synthetic matrices, sizes, grids.
#![no_main]

use fednmf::cli;
use fednmf::cli::{Settings, Typed};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let words = std::iter::once("fednmf").chain(text.split('\n'));
    match cli::parse(words.map(Into::into)) {
        Ok(Typed::Run(args, matches)) => {
            if let Ok(settings) = Settings::check(*args, &matches, Vec::new()) {
                let _ = (settings.all(), settings.settled(1000, 800, false));
            }
        }
        Ok(Typed::Command(command)) => drop(cli::print_info(&command)),
        Ok(Typed::Text(_)) | Err(_) => {}
    }
});
