//! The command line, and what it names: synthetic matrices, sizes, grids.
#![no_main]

use fednmf::cli::Request;
use fednmf::cli;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let words = std::iter::once("fednmf").chain(text.split('\n'));
    match cli::parse(words.map(Into::into)) {
        Ok(Request::Run(args, method)) => {
            if let Ok(settings) = args.check(method, Vec::new()) {
                let _ = settings.all(settings.method.assumed(), settings.precision);
            }
        }
        Ok(request) => drop(cli::answer(&request)),
        Err(_) => {}
    }
});
