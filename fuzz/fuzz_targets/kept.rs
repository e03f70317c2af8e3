//! What a run leaves: the end of a trace, the seal of a checkpoint, a trace of which a report is made.
#![no_main]

use fednmf_base::unfinished::Access;
use fednmf_driver::trace::Trace;
use fednmf_files::output::checkpoint::Checkpoint;
use fednmf_report as report;
use fednmf_report::{Display, History, Run};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((&how, bytes)) = data.split_first() else { return };
    if how % 3 == 2 {
        fednmf_fuzz::with_file("jsonl", bytes, |path| {
            let Ok(history) = History::read(path.as_ref()) else { return };
            let (factors, page) = (Err("none".to_string()), format!("{path}.html"));
            let sample = Err("none".to_string());
            let run = Run { history, factors, sample, display: Display::default(), notes: Vec::new() };
            report::write(page.as_ref(), vec![run], Access::Default).expect("a page of whatever numbers");
            let _ = std::fs::remove_file(page);
        });
    } else if how % 3 == 0 {
        fednmf_fuzz::with_file("jsonl", bytes, |path| {
            let mut trace = Trace::open(Some(path.as_ref()), Some(usize::MAX), Access::Default)
                .expect("a file that is there can be opened");
            trace.write(&"event".into());
            let text = std::fs::read(path).expect("the file");
            // What was whole is still there, what was torn is gone.
            let whole = bytes.iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
            assert_eq!(text, [&bytes[..whole], b"\"event\"\n"].concat());
        });
    } else {
        // HDF5 must not see a file whose seal does not fit: a wrong file is refused here, whatever its bytes.
        fednmf_fuzz::with_file("h5", bytes, |path| drop(Checkpoint::open(path.as_ref())));
    }
});
