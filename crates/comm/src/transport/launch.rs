//! Detects the launcher (`mpirun`, `srun` and the like) that started this process, from the environment.

/// Variables with the rank of a process: Open MPI; the PMI of MPICH, Intel MPI, Cray and Slurm; PMIx; MVAPICH; Cray's PALS
/// and ALPS; IBM's jsrun; Flux.
const RANK: [&str; 9] = [
    "OMPI_COMM_WORLD_RANK",
    "PMI_RANK",
    "PMIX_RANK",
    "MV2_COMM_WORLD_RANK",
    "MPIRUN_RANK",
    "PALS_RANKID",
    "ALPS_APP_PE",
    "JSM_NAMESPACE_RANK",
    "FLUX_TASK_RANK",
];

/// Variables with the number of processes; PMIx, PALS and ALPS have none.
const SIZE: [&str; 6] =
    ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "MPIRUN_NPROCS", "JSM_NAMESPACE_SIZE", "FLUX_JOB_SIZE"];

/// Slurm's reserved step numbers begin here: the batch script, an interactive shell, `sbatch`'s extern step.
const RESERVED_STEPS: u64 = 0xffff_fff0;

/// A process that a launcher has started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launch {
    pub rank: usize,
    /// The number of processes, if the launcher provides it.
    pub size: Option<usize>,
}

impl Launch {
    /// `None` if no launcher has started this process.
    pub fn detect() -> Option<Launch> {
        Launch::from(|name| std::env::var(name).ok())
    }

    /// The tasks of the Slurm job, if no launcher has started this process and it is one of several that the job asked for.
    pub fn unused_tasks() -> Option<usize> {
        Launch::unused(|name| std::env::var(name).ok())
    }

    fn unused(variable: impl Fn(&str) -> Option<String>) -> Option<usize> {
        let tasks = variable("SLURM_NTASKS")?.parse().ok()?;
        (tasks > 1 && Launch::from(variable).is_none()).then_some(tasks)
    }

    fn from(variable: impl Fn(&str) -> Option<String>) -> Option<Launch> {
        let number = |name: &&str| variable(name).and_then(|value| value.parse::<u64>().ok());
        // A batch script has SLURM_PROCID=0 too, but no step of its own: srun has not started what runs in it.
        let step = ["SLURM_STEP_ID", "SLURM_STEPID"].iter().find_map(number);
        let srun = step.is_some_and(|step| step < RESERVED_STEPS);
        let with_srun = |name: &'static str| srun.then_some(name);
        let rank = RANK.into_iter().chain(with_srun("SLURM_PROCID")).find_map(|name| number(&name))?;
        let size = SIZE.into_iter().chain(with_srun("SLURM_STEP_NUM_TASKS")).find_map(|name| number(&name));
        Some(Launch { rank: rank as usize, size: size.map(|size| size as usize) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(variables: &[(&str, &str)]) -> Option<Launch> {
        Launch::from(|name| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_string()))
    }

    #[test]
    fn launchers_are_recognised() {
        assert_eq!(launch(&[("HOME", "/root")]), None);
        let open_mpi = [("PMIX_RANK", "2"), ("OMPI_COMM_WORLD_RANK", "2"), ("OMPI_COMM_WORLD_SIZE", "4")];
        assert_eq!(launch(&open_mpi), Some(Launch { rank: 2, size: Some(4) }));
        assert_eq!(launch(&[("PMI_RANK", "0"), ("PMI_SIZE", "1")]), Some(Launch { rank: 0, size: Some(1) }));
        assert_eq!(launch(&[("PMIX_RANK", "3")]), Some(Launch { rank: 3, size: None }));
    }

    #[test]
    fn a_batch_script_is_not_a_step_of_srun() {
        let script = [("SLURM_JOB_ID", "7"), ("SLURM_PROCID", "0"), ("SLURM_NTASKS", "16")];
        assert_eq!(launch(&script), None);
        let of = |variables: &[(&str, &str)]| {
            Launch::unused(|name| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_string()))
        };
        assert_eq!((of(&script), of(&script[..2]), of(&[("SLURM_NTASKS", "1")])), (Some(16), None, None));
        let reserved = [("SLURM_STEP_ID", "4294967291"), ("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "1")];
        assert_eq!(launch(&reserved), None);
        let step = [("SLURM_STEP_ID", "0"), ("SLURM_PROCID", "5"), ("SLURM_STEP_NUM_TASKS", "16")];
        assert_eq!(of(&[&step[..], &script].concat()), None);
        assert_eq!(launch(&step), Some(Launch { rank: 5, size: Some(16) }));
    }
}
