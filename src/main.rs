//! Parse, run, exit code.

#![forbid(unsafe_code)]

use std::io::Write as _;

use fednmf::cli::Typed;
use fednmf::comm::Communicator;
use fednmf::error::{EXIT_DONE, EXIT_FAILED};
use fednmf::hdf5_probe::What;
use fednmf::{cli, comm, commands, data, hdf5_probe, output};

fn main() {
    if let Some((what, path, dataset)) = hdf5_probe::asked() {
        // Whether it comes back at all is the answer; what is wrong in words is told by who asked.
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
    // Help, lists and the like need no MPI: they work on a login node too.
    let typed = cli::parse(std::env::args_os());
    let text = match &typed {
        Ok(Typed::Text(text)) => Ok(Some(text.clone())),
        Ok(Typed::Command(command)) => cli::print_info(command),
        _ => Ok(None),
    };
    if let Ok(Some(text)) = &text {
        // Nobody reads any more (`fednmf list | head`): that is no error.
        let _ = if comm::launched_rank() == 0 { std::io::stdout().write_all(text.as_bytes()) } else { Ok(()) };
        std::process::exit(EXIT_DONE);
    }

    comm::abort_on_panic();
    let Some(universe) = mpi::initialize() else {
        eprintln!("fednmf: MPI is already initialised");
        std::process::exit(EXIT_FAILED);
    };
    let comm = Communicator::new(universe.world());
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
    // Ends MPI on all ranks together: exiting without it, the first to end would take the others' last words along.
    drop(comm);
    drop(universe);
    std::process::exit(code);
}
