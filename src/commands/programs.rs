//! `fednmf programs`: the programmes of cells from finished runs, in the files of cNMF. Owners of different cells need only masked
//! sums: each gets the spectra and scores of the cells of all, and the usages of its own.

use std::path::PathBuf;

use clap::Args;
use ndarray::Array2;
#[cfg(feature = "sites")]
use serde_json::{Map, Value, json};

use fednmf_base::error::{EXIT_DONE, Error, Result, SharedResult};
use fednmf_base::unfinished::Access;
use fednmf_base::units::parse_bytes;
use fednmf_base::warning::{note, warn};
use fednmf_comm::party_sum::{KEYS, PartySum, masked};
use fednmf_comm::{AGREEMENT, CONTROL, Communicator, MessageTag, Parties, PartyCommunicator, Payload};
use fednmf_data::Loaded;
use fednmf_data::messages::HEADERS;
use fednmf_driver::metadata;
use fednmf_driver::model_selection::{CellSums, Clusters, Genes, Programs, Spectra};
use fednmf_driver::progress::Progress;
use fednmf_files as data;
#[cfg(feature = "sites")]
use fednmf_files::names;
use fednmf_files::names::{Names, unmatched};
use fednmf_files::{InputSpec, PARTY, Source, highest_party, party_path};
use fednmf_methods::description::{COMMON_MESSAGES, Description, MessageSpec, Partition};
use fednmf_methods::federated::few_values::EntryFacts;
use fednmf_methods::metrics::Measure;
use fednmf_methods::parameters;
use fednmf_methods::shared::disclosure::DisclosureParams;
use fednmf_privacy::wide;

use super::choose::{Run, read_runs};
#[cfg(feature = "sites")]
use super::join::work::Joint;
use super::prepare::read::{USED_COLUMNS, compare_used};
use super::prepare::sums::{check_opened, check_rare};
use super::sweep::cnmf::CnmfDirectory;
use super::sweep::programs::{Files, axis, held, load, places};
use crate::cli::parameters::Group;

/// `fednmf programs`.
#[derive(Debug, Args)]
pub struct ProgramsArgs {
    /// Outputs of runs of one method on the same cells, with at least 4 seeds for each k (.h5, .h5ad, .npz)
    #[arg(required = true, value_name = "F.h5")]
    pub runs: Vec<PathBuf>,
    /// The cells that were factorised. {party} in a path stands for 0, 1, ...: one file per party
    #[arg(short = 'i', long, value_name = "PATH")]
    pub input: String,
    /// The same cells with all genes, each with the same total: 'prepare counts --row-total 1e6'
    #[arg(long, value_name = "PATH")]
    pub tpm: String,
    /// Write the files of cNMF into this directory, which is made if there is none; its name is that of the files
    #[arg(long, value_name = "DIR")]
    pub cnmf: String,
    /// Leave spectra out whose mean distance to their nearest neighbours is not below X; 2: none
    #[arg(long, value_name = "X", default_value_t = 0.5, value_parser = parameters::number(0.0, 2.0))]
    pub density_threshold: f64,
    /// Memory that may be used: 4G, 512M [default: what is free]. Cells that do not fit are read from the file a panel at a time,
    /// except from files of parties
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub memory: Option<u64>,
    #[command(flatten)]
    pub disclosure: Group<DisclosureParams>,
}

const SUMS: MessageTag = MessageTag::new("sums over cells", Payload::Product);
const PRODUCTS: MessageTag = MessageTag::new("products of genes with usages", Payload::Product);

/// Vectors in the space of the cells that are opened beside those of each k.
const SUMS_OF_GENES: usize = 3;

/// What joint programmes declare, as methods do.
pub static DESCRIPTION: Description = Description {
    name: "programs",
    summary: "programmes of the parties' cells as in cNMF",
    partition: Partition::PartyRows,
    limits: Some([
        "The sums of all parties are known to all; all parties but one, together, know that of the last one.",
        "Scores show in which direction genes go with a programme, also those that are in few cells.",
    ]),
    messages: &[
        MessageSpec::control(KEYS, "32 bytes", "once, before the first sum"),
        MessageSpec::new(USED_COLUMNS, "number and SHA-256 of the names of all genes", "once"),
        MessageSpec::new(
            masked(SUMS),
            "sum, squares about the mean and number of cells of each gene; for each k an error, and sums and products of usages",
            "twice, and four times for each k",
        ),
        MessageSpec::new(masked(PRODUCTS), "genes x k", "twice for each k"),
    ],
    ..Description::USUAL
};

/// All that leaves a party.
pub fn messages() -> Vec<&'static MessageSpec> {
    let kinds = [CONTROL.kind, AGREEMENT.kind, HEADERS.kind];
    COMMON_MESSAGES.iter().filter(move |w| kinds.contains(&w.kind)).chain(DESCRIPTION.messages).collect()
}

/// The runs with one k.
struct OfK {
    k: usize,
    spectra: Spectra,
    clusters: Clusters,
}

/// Programmes whose options and runs are checked.
pub struct JointPrograms {
    args: ProgramsArgs,
    runs: Vec<OfK>,
    /// The genes that were factorised.
    genes: Vec<String>,
    /// Whether there is a file for each party.
    by_party: bool,
    /// Whether the cells are those of parties.
    of_parties: bool,
}

/// The own cells.
struct Own {
    cnmf: CnmfDirectory,
    /// Of the cells as they were factorised, and with all genes.
    specs: [InputSpec; 2],
    names: [Names; 2],
    places: Vec<usize>,
    cells: usize,
}

impl Own {
    /// The names of all genes.
    fn genes(&self) -> &[String] {
        self.names[1].columns.as_deref().unwrap_or_default()
    }
}

/// Writes the programmes of one owner on one rank, or of parties on any number of ranks. Collective.
///
/// # Errors
/// If the runs or the cells cannot be used, or a file cannot be written.
pub fn programs(args: ProgramsArgs, comm: &Communicator) -> Result<i32> {
    let checked = comm.agree_on_error(JointPrograms::check(args, false))?;
    checked.perform(comm)
}

impl JointPrograms {
    /// Reads the runs; `at_site`: the cells are those of a site, which is one of the parties.
    ///
    /// # Errors
    /// Naming the option or the run that is wrong.
    pub fn check(args: ProgramsArgs, at_site: bool) -> Result<Self> {
        let named = [("--input", &args.input), ("--tpm", &args.tpm), ("--cnmf", &args.cnmf)];
        let of_parties = named.iter().filter(|(_, name)| name.contains(PARTY)).count();
        let why = match of_parties {
            0 if !at_site && args.disclosure.0 != DisclosureParams::default() => {
                "--colluding, --min-rows, --suppress-rare, --accept-risk: are about files of parties, with {party} in --input; leave them out"
            }
            0 => "",
            _ if at_site => "--input, --tpm and --cnmf: a site names its own files, without {party}",
            3 => "",
            _ => {
                "--input, --tpm and --cnmf: each party has files of its own; put {party} into all three names, or into none"
            }
        };
        if !why.is_empty() {
            return Err(Error::input(why));
        }
        let by_k = read_runs(&args.runs)?;
        let mut genes = None;
        let mut runs = Vec::new();
        for (k, mut own) in by_k {
            own.iter().try_for_each(check_run)?;
            // The same at all sites, however they name their files.
            let in_order = |a: &Run<'_>, b: &Run<'_>| a.shared.iter().partial_cmp(b.shared.iter());
            own.sort_by(|a, b| in_order(a, b).unwrap_or(std::cmp::Ordering::Equal));
            let components: Vec<Array2<f64>> = own.iter().map(|run| run.shared.clone()).collect();
            let (spectra, clusters) = Spectra::kept(&components, args.density_threshold)?;
            runs.push(OfK { k, spectra, clusters });
            genes = own.swap_remove(0).names.or(genes);
        }
        Ok(JointPrograms {
            by_party: of_parties > 0,
            of_parties: at_site || of_parties > 0,
            runs,
            genes: genes.unwrap_or_default(),
            args,
        })
    }

    /// Computes and writes. Collective.
    ///
    /// # Errors
    /// As [`programs`].
    pub fn perform(self, comm: &Communicator) -> Result<i32> {
        let has_parties = self.by_party || comm.has_owners();
        let count = match self.by_party {
            true => comm.broadcast_value(HEADERS, highest_party(&self.args.input).map_or(0, |last| last + 1)),
            false => comm.size(),
        };
        if !has_parties && comm.size() > 1 {
            let why =
                "programs: one owner works on one rank; name the files of parties with {party}, or start one process";
            return Err(Error::input(why).on_all_ranks().into());
        }
        if count < comm.size() {
            let why = format!("programs: {} ranks, but {count} parties; start at most a rank for each", comm.size());
            return Err(Error::input(why).on_all_ranks().into());
        }
        let parties = Parties { count, ranks: comm.size() };
        let own =
            comm.agree_on_error(parties.hosted(comm.rank()).map(|party| self.own(party)).collect::<Result<Vec<_>>>())?;
        let counts = agreed_counts(&own, comm)?;
        let first = &own[0];
        let genes = first.genes();
        let opened = SUMS_OF_GENES + self.runs.iter().map(|of_k| 2 * of_k.k).sum::<usize>();
        check_opened(&self.args.disclosure.0, &counts, genes.len(), opened).map_err(Error::on_all_ranks)?;
        let mut progress = Progress::new(comm.reports(), None);
        let alike = match own.iter().all(|other| other.genes() == genes) {
            true => Ok(()),
            false => {
                Err(Error::input("--tpm: the files have other genes; prepare them together, with --common-columns"))
            }
        };
        comm.agree_on_error(alike)?;
        if has_parties {
            compare_used(
                genes,
                "or in another order: prepare the files of --tpm together, with --common-columns",
                comm,
            )?;
        }
        if parties.count == 2 {
            progress.warn(
                "masks hide nothing between two parties: each can subtract its own term from the sum; use three or more",
            );
        }
        let mut load = |which: usize, beside: f64| {
            let specs = own.iter().map(|own| own.specs[which].clone());
            self.load(specs, beside, parties.count > 1, &mut progress)
        };
        let cells = comm.agree_on_error(load(0, 0.0))?;
        let beside = cells.iter().map(|own| held(own, self.args.memory, &Communicator::local())).sum();
        let all = comm.agree_on_error(load(1, beside))?;
        progress.finish();
        let facts: Vec<&dyn EntryFacts> =
            cells.iter().chain(&all).flat_map(|own| &own.blocks).map(|block| block as &dyn EntryFacts).collect();
        comm.agree_on_error(check_rare(&self.args.disclosure.0, &counts, genes.len(), &facts))?;
        comm.agree_on_error(own.iter().try_for_each(|own| own.cnmf.create()))?;
        let mut sums = PartySums::new(comm, parties, counts.iter().sum())?;
        let genes = Genes::new(&all, &first.places, &mut sums)?;
        let (mut statistics, threshold) = (Vec::new(), self.args.density_threshold);
        for OfK { k, spectra, clusters } in &self.runs {
            let found = Programs::new(Some(clusters), *k, &cells, &genes, &mut sums)?;
            statistics.push([*k as f64, threshold, clusters.silhouette, found.error]);
            let write = |(place, own): (usize, &Own)| {
                let [names, of_all] = &own.names;
                let labels = axis(&names.rows, own.cells);
                let files = Files { cnmf: &own.cnmf, k: *k, threshold, cells: labels, names, all: of_all };
                files.write(spectra, (&found, place), &genes)
            };
            comm.agree_on_error(own.iter().enumerate().try_for_each(write))?;
        }
        if comm.reports() {
            let of_k = |of_k: &OfK| {
                let (all, outlying) = (of_k.spectra.density.len(), of_k.spectra.outlying(self.args.density_threshold));
                format!("k = {}: {outlying} of {all} spectra are outlying and left out", of_k.k)
            };
            let spectra: Vec<String> = self.runs.iter().map(of_k).collect();
            let files = self.args.cnmf.replace(PARTY, "0, 1, …");
            note(&format!("{}; the files of cNMF are in {files}", spectra.join("; ")));
        }
        let statistics = Array2::from(statistics);
        comm.agree_on_error(own.iter().try_for_each(|own| own.cnmf.write_statistics(statistics.view())))?;
        Ok(EXIT_DONE)
    }

    /// The files of a party, of which only headers and names are read.
    fn own(&self, party: usize) -> Result<Own> {
        let path = PathBuf::from(self.args.cnmf.replace(PARTY, &party.to_string()));
        // The usages are rows of a party.
        let of_one = [&self.args.input, &self.args.tpm];
        let access = if self.of_parties { Access::OwnerOnly } else { Access::as_of(of_one) };
        let cnmf = CnmfDirectory::open_or_new(&path, access)?;
        let ks: Vec<usize> = self.runs.iter().map(|of_k| of_k.k).collect();
        cnmf.check_programs(&ks, self.args.density_threshold)?;
        let spec = |option: &str, pattern: &str| {
            let path = if self.by_party { party_path(pattern, party) } else { Some(pattern.to_string()) };
            let path =
                path.ok_or_else(|| Error::input(format!("{option} {pattern}: there is no file for party {party}")));
            let suppress = self.args.disclosure.0.suppress_rare.as_ref().copied();
            let memory = self.args.memory;
            InputSpec::parse(&path?).map(|spec| InputSpec { suppress, memory, ..spec }).map_err(|e| e.at(option))
        };
        let specs = [spec("--input", &self.args.input)?, spec("--tpm", &self.args.tpm)?];
        let local = Communicator::local();
        let open = |spec: &InputSpec| -> Result<_> {
            let input = data::open(spec, &local)?;
            Ok(((input.header().rows, input.header().cols), metadata::names_of(spec, false, &local)))
        };
        let [(shape, names), (of_tpm, all)] = [open(&specs[0])?, open(&specs[1])?];
        let shown = |spec: &InputSpec| match &spec.source {
            Source::File { path, .. } => path.clone(),
            Source::Synthetic(_) => String::new(),
        };
        let [cells, tpm] = [0, 1].map(|at| shown(&specs[at]));
        if names.columns.as_ref() != Some(&self.genes) {
            return Err(Error::input(format!(
                "--input {cells}: has other genes than the runs, or others in this order; give the matrix that was factorised"
            )));
        }
        if of_tpm.0 != shape.0 || names.rows.is_some() && all.rows.is_some() && names.rows != all.rows {
            return Err(Error::input(format!(
                "--tpm {tpm}: has other cells than {cells}, or others in this order; prepare both from one file"
            )));
        }
        if let Some(text) = unmatched("cell", names.rows.as_deref(), "--tpm has", all.rows.as_deref()) {
            warn(&text);
        }
        let places = places(&names, &all).map_err(|why| {
            Error::input(format!("--tpm {tpm}: {why}; prepare it as --input, without --variable-columns"))
        })?;
        Ok(Own { cnmf, specs, names: [names, all], places, cells: shape.0 })
    }

    /// The cells of each hosted party: as they were factorised, or with all genes, `beside` bytes of others.
    fn load(
        &self,
        specs: impl Iterator<Item = InputSpec>,
        beside: f64,
        has_parties: bool,
        progress: &mut Progress,
    ) -> Result<Vec<Loaded<f64>>> {
        let most = self.runs.iter().map(|of_k| of_k.k).max().unwrap_or(0);
        let local = Communicator::local();
        let streaming = || if has_parties { Err("rare entries are looked for in memory".to_string()) } else { Ok(()) };
        specs.map(|spec| Ok(load(&spec, (beside, most), streaming(), &local, progress)?.0)).collect()
    }
}

/// The number of cells of each party, if all have as many genes. Collective.
fn agreed_counts(own: &[Own], comm: &Communicator) -> SharedResult<Vec<usize>> {
    let own_shapes: Vec<(usize, usize)> = own.iter().map(|own| (own.cells, own.genes().len())).collect();
    let by_rank = comm.all_gather_value(HEADERS, &own_shapes);
    let shapes: Vec<(usize, (usize, usize))> = by_rank
        .into_iter()
        .enumerate()
        .flat_map(|(rank, all)| all.into_iter().map(move |shape| (rank, shape)))
        .collect();
    let counts: Vec<usize> = shapes.iter().map(|(_, (cells, _))| *cells).collect();
    if let Some(other) = shapes.iter().position(|(_, shape)| shape.1 != shapes[0].1.1) {
        let name = |party: usize| match comm.has_owners() {
            true => comm.name_of(shapes[party].0),
            false => format!("party {party}"),
        };
        return Err(Error::input(format!(
            "--tpm: {} has {} genes, and {} {}; prepare these files together, with --common-columns",
            name(0),
            shapes[0].1.1,
            name(other),
            shapes[other].1.1
        ))
        .on_all_ranks());
    }
    Ok(counts)
}

/// Refuses runs that cNMF's programmes do not follow from.
fn check_run(run: &Run<'_>) -> Result<()> {
    let why = match run {
        _ if run.by_columns => "its cells are columns",
        _ if run.names.is_none() => "has no names of genes",
        _ if run.method.description().is_boolean() => "has Boolean factors",
        _ => match run.method.description().measure {
            Measure::Divergence | Measure::BetaDivergence => {
                "minimises a divergence, and the programmes are for least squares: factorise with hals, or among parties with fnmf or mpc-rows"
            }
            _ => return Ok(()),
        },
    };
    Err(Error::input(format!("{}: {why}", run.path.display())))
}

/// Sums over the cells of all parties, masked where there are several.
struct PartySums {
    comm: PartyCommunicator,
    /// This rank alone.
    local: Communicator,
    sums: PartySum,
    cells: usize,
}

impl PartySums {
    fn new(comm: &Communicator, parties: Parties, cells: usize) -> Result<Self> {
        let comm = PartyCommunicator::new(comm.clone());
        // A single owner has nobody to hide from.
        let sums =
            if parties.count > 1 { PartySum::masked(&comm, parties, 0)? } else { PartySum::plain(&comm, parties) };
        Ok(PartySums { comm, local: Communicator::local(), sums, cells })
    }
}

impl CellSums for PartySums {
    fn ranks(&self) -> &Communicator {
        &self.local
    }

    fn cells(&self) -> usize {
        self.cells
    }

    fn sum(&mut self, own: Vec<Vec<f64>>) -> Result<Vec<f64>> {
        if own.iter().flatten().any(|x| !x.is_finite()) {
            return Err(Error::failed("programs: a sum over cells is not finite; check --input and --tpm"));
        }
        // Fixed point would need a bound, which tells of the largest entry.
        let fill = |place: usize, words: &mut [u64]| {
            let numbers = own[place].iter().zip(words.chunks_exact_mut(wide::WORDS));
            numbers.for_each(|(x, words)| wide::encode(*x, words));
        };
        let length = own.first().map_or(0, Vec::len) * wide::WORDS;
        let total = self.sums.sum_words(&self.comm, SUMS, length, fill)?;
        Ok(total.chunks_exact(wide::WORDS).map(wide::decode).collect())
    }

    fn sum_products(&mut self, mut own: Vec<Vec<f64>>, bounds: &[f64]) -> Result<Vec<f64>> {
        for term in &mut own {
            term.iter_mut().zip(bounds).for_each(|(x, bound)| *x = if *bound > 0.0 { *x / bound } else { 0.0 });
        }
        // Room for rounding.
        let most = self.sums.without_headroom(2.0);
        let mut sum = vec![0.0; bounds.len()];
        self.sums.sum(&self.comm, PRODUCTS, most, own.iter().map(Vec::as_slice), &mut sum)?;
        sum.iter_mut().zip(bounds).for_each(|(x, bound)| *x *= bound);
        Ok(sum)
    }
}

#[cfg(feature = "sites")]
impl Joint for JointPrograms {
    fn description(&self) -> &'static Description {
        &DESCRIPTION
    }

    fn settings(&self) -> Map<String, Value> {
        let mut all = fednmf_base::parameters::to_json(&self.args.disclosure.0);
        // The spectra are known to all sites, which find the same clusters in them.
        let bits = |of_k: &OfK| {
            let medians = of_k.clusters.kept.iter().chain(&of_k.clusters.all);
            of_k.spectra.values.iter().chain(medians).map(|x| format!("{:x}", x.to_bits())).collect::<Vec<_>>()
        };
        let spectra: Vec<String> = self.runs.iter().flat_map(bits).chain(self.genes.iter().cloned()).collect();
        all.insert("runs".into(), names::digest(&spectra).into());
        all.insert("density_threshold".into(), json!(self.args.density_threshold));
        all
    }

    fn accepted(&self) -> String {
        use fednmf_methods::parameters::ParamType as _;
        self.args.disclosure.0.accept_risk.text().unwrap_or_default()
    }

    fn own_shape(&self) -> Result<(usize, usize)> {
        let input = data::open(&InputSpec::parse(&self.args.input)?, &Communicator::local())?;
        Ok((input.header().rows, input.header().cols))
    }

    fn perform_with(self: Box<Self>, comm: &Communicator) -> Result<i32> {
        self.perform(comm)
    }
}
