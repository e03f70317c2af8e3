//! Parses the command line, runs the command, and ends with its exit code.

#![forbid(unsafe_code)]

use fednmf::cli;
use fednmf_base::error::{EXIT_DONE, Error};
use fednmf_base::failure::close_records;
use fednmf_base::warning::error;
use fednmf_comm as comm;
use fednmf_comm::Communicator;
use fednmf_comm::watchdog::Watchdog;
use fednmf_files as data;
use fednmf_files::hdf5_probe;
use fednmf_files::hdf5_probe::Content;
use fednmf_files::output;
use fednmf_linalg::sequential_blas;

fn main() {
    if let Some((content, path, dataset)) = hdf5_probe::requested() {
        // Only whether the process survives matters; its parent meets and reports other errors itself.
        match content {
            Content::Matrix => {
                drop(data::formats::hdf5::probe(&path, dataset.as_deref()));
                data::names::probe(&path, dataset.as_deref());
            }
            Content::Factors => {
                output::matrices::probe(path.as_ref());
                data::names::probe(&path, None);
            }
            Content::Names => data::names::probe(&path, dataset.as_deref()),
        }
        return;
    }
    output::attributes::set_revision(fednmf::REVISION);
    hdf5_probe::enable();
    sequential_blas();
    cli::begin(std::env::args_os());
    // Help, lists and the like need no MPI: they work on a login node too.
    let request = cli::parse(std::env::args_os());
    let request = request.and_then(|request| Ok((cli::answer(&request)?, request)));
    if let Ok((Some(text), _)) = &request {
        let printed = if comm::launched_rank() == 0 { fednmf_base::stdout::print_styled(text) } else { Ok(()) };
        std::process::exit(match printed {
            Ok(()) => EXIT_DONE,
            Err(e) => {
                error(&e.to_string());
                e.exit_code()
            }
        });
    }

    comm::abort_on_panic();
    let comm = match Communicator::start() {
        Ok(comm) => comm,
        Err(e) => {
            if comm::reports_refused_start() {
                error(&e.to_string());
            }
            std::process::exit(e.exit_code());
        }
    };
    let done = cli::check_command_lines(&comm)
        .and_then(|()| request.map_err(Error::on_all_ranks))
        .map_err(Into::into)
        .and_then(|(_, request)| cli::perform(request, &comm));
    let code = match done {
        Ok(code) => code,
        Err(e) => {
            if !e.is_shared() || comm.is_root() {
                error(&e.to_string());
            }
            close_records();
            if !e.is_shared() {
                comm::end_job(e.exit_code());
            }
            e.exit_code()
        }
    };
    // Ends MPI on all ranks together; otherwise the first process to exit could cut off the output of the others. A
    // rank that hangs at this point would block the others indefinitely, so a watchdog is started. If its thread cannot
    // be started, they wait.
    let watchdog = Watchdog::for_shutdown(comm.rank());
    drop(comm);
    drop(watchdog);
    std::process::exit(code);
}
