//! Parses the command line, runs the command, and ends with its exit code.

#![forbid(unsafe_code)]

use std::io::Write as _;

use fednmf::cli::Typed;
use fednmf::comm::Communicator;
use fednmf::error::EXIT_DONE;
use fednmf::hdf5_probe::What;
use fednmf::{cli, comm, commands, data, hdf5_probe, output};

fn main() {
    if let Some((what, path, dataset)) = hdf5_probe::asked() {
        // The parent learns only whether this process survives; it reports errors itself.
        let _ = match what {
            What::Matrix => data::hdf5_probe(&path, dataset.as_deref()),
            What::Factors => output::matrices::Stored::open(path.as_ref()).map(drop),
            What::Names => {
                data::names::hdf5_probe(&path);
                Ok(())
            }
        };
        return;
    }
    hdf5_probe::arm();
    // Help and lists need no other rank: they work on a login node too.
    let typed = cli::parse(std::env::args_os());
    let text = match &typed {
        Ok(Typed::Text(text)) => Ok(Some(text.clone())),
        Ok(Typed::Command(command)) => cli::print_info(command),
        _ => Ok(None),
    };
    if let Ok(Some(text)) = &text {
        // A reader that has gone (`fednmf list | head`) is no error.
        let _ = if comm::launched_rank() == 0 { std::io::stdout().write_all(text.as_bytes()) } else { Ok(()) };
        std::process::exit(EXIT_DONE);
    }

    comm::abort_on_panic();
    let comm = match Communicator::start() {
        Ok(comm) => comm,
        Err(e) => {
            if !e.everywhere || comm::launched_rank() == 0 {
                eprintln!("fednmf: {e}");
            }
            std::process::exit(e.exit_code());
        }
    };
    let code = match text.and(typed).map_err(|e| e.on_all_ranks()).and_then(|typed| commands::perform(typed, &comm)) {
        Ok(code) => code,
        Err(e) => {
            if !e.everywhere || comm.is_root() {
                eprintln!("fednmf: {e}");
            }
            if !e.everywhere {
                comm::end_job(e.exit_code());
            }
            e.exit_code()
        }
    };
    // Ends MPI on all ranks together; otherwise the first process to exit could cut off the output of the others.
    drop(comm);
    std::process::exit(code);
}
