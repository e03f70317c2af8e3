//! The last steps of cNMF, `combine` and `consensus`, on the runs of a sweep: the programmes of each k in its files.

use std::collections::HashMap;

use ndarray::{Array2, ArrayView2};

use fednmf_base::error::{Error, Result};
use fednmf_comm::{Communicator, MessageTag, Payload};
use fednmf_data::Loaded;
use fednmf_driver::model_selection::{Genes, OneOwner, Programs, Spectra};
use fednmf_driver::progress::Progress;
use fednmf_driver::{metadata, streaming};
use fednmf_files as data;
use fednmf_files::InputSpec;
use fednmf_files::names::Names;
use fednmf_methods::metrics::Measure;
use fednmf_methods::parameters::Missing;

use super::cnmf::{Axis, CnmfDirectory, RESULTS, density_cache, label, merged};
use super::runs::Sweep;

/// What rank 0 found: files, places of genes, the number of spectra that are not outlying.
const FOUND: MessageTag = MessageTag::new("programmes: places and outliers", Payload::Metadata);

/// Writes the programmes of each k. Collective.
///
/// # Errors
/// On all ranks, if a file cannot be read or written.
pub fn write(sweep: &Sweep<'_>, cnmf: &CnmfDirectory, comm: &Communicator, progress: &mut Progress) -> Result<()> {
    let neighbours = Spectra::neighbours(sweep.args.runs);
    let why = if comm.is_root() { why_not(sweep, cnmf) } else { None };
    if let Some(why) = comm.broadcast_value(FOUND, why) {
        progress.note(&format!("--cnmf: the spectra of all runs are written, and no programmes, since {why}"));
        return Ok(());
    }
    let most = sweep.ks.iter().copied().max().unwrap_or(0);
    let (counts, names) = load(&sweep.input, (0.0, most), Ok(()), comm, progress)?;
    let mut tpm = InputSpec::parse(&cnmf.transcripts().to_string_lossy())?;
    tpm.memory = sweep.args.memory;
    let (tpm, of_tpm) = load(&tpm, (held(&counts, tpm.memory, comm), most), Ok(()), comm, progress)?;
    if tpm.header.rows != counts.header.rows {
        return Err(Error::input(format!(
            "--cnmf: {} has {} cells, and the matrix {}; prepare both together",
            cnmf.transcripts().display(),
            tpm.header.rows,
            counts.header.rows
        ))
        .on_all_ranks()
        .into());
    }
    let places = if comm.is_root() {
        let wrong = |why: &str| Error::input(format!("--cnmf: {} {why}", cnmf.transcripts().display()));
        places(&names, &of_tpm).map_err(|why| wrong(&format!("{why}; prepare both together")))
    } else {
        Ok(Vec::new())
    };
    let places: Vec<usize> = comm.broadcast_value(FOUND, comm.agree_on_error(places)?);
    let mut owner = OneOwner { ranks: comm, cells: counts.header.rows };
    let (counts, tpm) = ([counts], [tpm]);
    let genes = Genes::new(&tpm, &places, &mut owner)?;
    let mut statistics = Vec::new();
    for (i, &k) in sweep.ks.iter().enumerate() {
        let spectra = if comm.is_root() { sweep.components(k).map(Some) } else { Ok(None) };
        let spectra = comm.agree_on_error(spectra)?.map(|runs| Spectra::new(&runs, neighbours));
        let threshold = sweep.args.density_threshold;
        let clusters = spectra.as_ref().map(|spectra| spectra.clusters(threshold));
        let left = comm.broadcast_value(FOUND, clusters.as_ref().and_then(|clusters| clusters.as_ref().err().copied()));
        if let Some(left) = left {
            progress.warn(&format!(
                "--cnmf: k = {k} has no programmes: {left} of {} spectra have a local density below {threshold}; raise \
                 --density-threshold or --runs",
                k * sweep.args.runs
            ));
            continue;
        }
        let clusters = clusters.and_then(std::result::Result::ok);
        let found = Programs::new(clusters.as_ref(), k, &counts, &genes, &mut owner)?;
        let cells = axis(&names.rows, counts[0].header.rows);
        let files = Files { cnmf, k, threshold, cells, names: &names, all: &of_tpm };
        let written = match (&spectra, &clusters) {
            (Some(spectra), Some(clusters)) => {
                statistics.push([k as f64, threshold, clusters.silhouette, found.error]);
                files.write(spectra, (&found, 0), &genes)
            }
            _ => Ok(()),
        };
        comm.agree_on_error(written)?;
        progress.run(i + 1, sweep.ks.len(), &format!("programmes of k = {k}"));
    }
    let written = match comm.is_root() {
        true => cnmf.write_statistics(Array2::from(statistics).view()),
        false => Ok(()),
    };
    Ok(comm.agree_on_error(written)?)
}

/// Checks that the programmes, if there will be some, replace no file that a sweep did not write.
///
/// # Errors
/// Naming the first such file.
pub fn check(sweep: &Sweep<'_>, cnmf: &CnmfDirectory) -> Result<()> {
    match why_not(sweep, cnmf) {
        Some(_) => Ok(()),
        None => cnmf.check_programs(&sweep.ks, sweep.args.density_threshold),
    }
}

/// Why a sweep has no programmes.
fn why_not(sweep: &Sweep<'_>, cnmf: &CnmfDirectory) -> Option<String> {
    let method = sweep.algo.description();
    match () {
        () if Spectra::neighbours(sweep.args.runs) == 0 => Some("they need at least 4 --runs".into()),
        () if method.measure != Measure::RelativeError => Some(format!(
            "they are for least squares; `cnmf combine` and `cnmf consensus` make those of {}",
            method.name
        )),
        () if sweep.left_out.missing != Missing::None => Some("they are for complete data".into()),
        () if !cnmf.transcripts().exists() => Some(format!("there is no {}", cnmf.transcripts().display())),
        () => None,
    }
}

/// Bytes of `cells` that a matrix loaded after them must leave of the memory that the user allows. The memory that is free is without
/// them already.
pub fn held(cells: &Loaded<f64>, memory: Option<u64>, comm: &Communicator) -> f64 {
    match (&cells.panels, memory) {
        (None, Some(_)) => cells.header.least_bytes(&cells.layout, comm.size(), size_of::<f64>()),
        _ => 0.0,
    }
}

/// The whole rows of a matrix of cells for programmes of at most k components, beside `held` bytes, with their names on rank 0.
/// Collective.
///
/// # Errors
/// On all ranks, if the file cannot be read, or memory is lacking.
pub fn load(
    spec: &InputSpec,
    (held, k): (f64, usize),
    streaming: std::result::Result<(), String>,
    comm: &Communicator,
    progress: &mut Progress,
) -> Result<(Loaded<f64>, Names)> {
    let input = data::open(spec, comm)?;
    let (m, n) = (input.header().rows, input.header().cols);
    // Usages and shares in two orders; products with the columns.
    let beside = held + (size_of::<f64>() * k * (4 * m + 4 * n)) as f64;
    let (mut loaded, note) = streaming::load_rows(input, beside, streaming, comm, &mut |part| progress.loading(part))?;
    note.iter().for_each(|note| progress.note(note));
    loaded.release();
    Ok((loaded, metadata::names_of(spec, false, comm)))
}

/// The place among all genes of each one that was factorised.
///
/// # Errors
/// What is wrong with the names of all genes.
pub fn places(names: &Names, all: &Names) -> std::result::Result<Vec<usize>, String> {
    let (Some(own), Some(all)) = (&names.columns, &all.columns) else {
        return Err("or the matrix has no names of genes".into());
    };
    let place: HashMap<&String, usize> = all.iter().enumerate().map(|(place, name)| (name, place)).collect();
    let find = |gene: &String| {
        place.get(gene).copied().ok_or_else(|| format!("has no gene {gene}, which the factorised matrix has"))
    };
    own.iter().map(find).collect()
}

/// The labels of rows or columns: names, or numbers from 0.
pub fn axis(names: &Option<Vec<String>>, count: usize) -> Axis<'_> {
    names.as_deref().map_or(Axis::Numbers(0, count), Axis::Names)
}

/// The files of the programmes of one k.
pub struct Files<'a> {
    pub cnmf: &'a CnmfDirectory,
    pub k: usize,
    pub threshold: f64,
    pub cells: Axis<'a>,
    /// Of the matrix that was factorised, and of all genes.
    pub names: &'a Names,
    pub all: &'a Names,
}

impl Files<'_> {
    /// Writes them, for the owner at this place among those here.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write(&self, spectra: &Spectra, (found, owner): (&Programs, usize), genes: &Genes<'_>) -> Result<()> {
        let Files { cnmf, k, threshold, cells, names, all } = *self;
        let [spectra_of_k, usages, per_million, scores, references] =
            RESULTS.map(|kind| kind.replace("{}", &label(k, threshold)));
        let topics: Vec<String> =
            (0..spectra.density.len()).map(|i| format!("iter{}_topic{}", i / k, i % k + 1)).collect();
        let factorised = axis(&names.columns, found.spectra.ncols());
        let (all, programs) = (axis(&all.columns, found.scores.ncols()), Axis::Numbers(1, k));
        cnmf.write_table(&merged(k), spectra.values.view(), Axis::Names(&topics), factorised)?;
        let density = ArrayView2::from_shape((topics.len(), 1), &spectra.density).expect("one for each spectrum");
        let title = ["local_density".to_string()];
        cnmf.write_table(&density_cache(k), density, Axis::Names(&topics), Axis::Names(&title))?;
        cnmf.write_result(&spectra_of_k, found.spectra.view(), programs, factorised)?;
        cnmf.write_result(&usages, found.usages[owner].view(), cells, programs)?;
        cnmf.write_result(&per_million, found.per_million.view(), programs, all)?;
        cnmf.write_result(&scores, found.scores.view(), programs, all)?;
        let numbered: Vec<String> = (1..=k).map(|i| format!("GEP{i}")).collect();
        let reference = found.reference(genes);
        cnmf.write_result(&references, reference.view(), Axis::Names(&numbered), factorised)
    }
}
