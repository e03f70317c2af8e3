//! The runs of a sweep as those of cNMF's step `factorize` (Kotliar et al., eLife 2019), whose next steps read them:
//! `cnmf_tmp/NAME.spectra.k_K.iter_I.df.npz` has the components of a run, k × n, as a pandas table. The files of the steps
//! `combine` and `consensus` are tables alike.

use std::collections::BTreeSet;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use ndarray::{Array2, ArrayView2};
use serde_json::Map;

use fednmf_base::error::{Error, Result};
use fednmf_base::unfinished;
use fednmf_base::unfinished::Access;
use fednmf_files::formats::fields::quoted;
use fednmf_files::output::npz::{Archive, Matrices};
use fednmf_files::{InputSpec, names};

use super::runs::Task;

/// A directory that `cnmf prepare` made.
pub struct CnmfDirectory {
    folder: PathBuf,
    name: String,
    /// Who may read its files.
    access: Access,
}

impl CnmfDirectory {
    /// The directory OUTPUT/NAME of `cnmf prepare --output-dir OUTPUT --name NAME`.
    ///
    /// # Errors
    /// If it is not such a directory.
    pub fn open(path: &Path, access: Access) -> Result<Self> {
        let wrong = |why: &str| Error::input(format!("--cnmf {}: {why}", path.display()));
        let folder = path.join("cnmf_tmp");
        if !folder.is_dir() {
            return Err(wrong("has no folder cnmf_tmp; give the directory OUTPUT/NAME that `cnmf prepare` made"));
        }
        let found = std::fs::canonicalize(path).ok();
        let name = found.as_deref().and_then(Path::file_name).ok_or_else(|| wrong("has no name"))?;
        Ok(CnmfDirectory { folder, name: name.to_string_lossy().into_owned(), access })
    }

    /// As [`CnmfDirectory::open`], or a directory that does not exist yet and that [`CnmfDirectory::create`] makes.
    ///
    /// # Errors
    /// If it exists and is no such directory.
    pub fn open_or_new(path: &Path, access: Access) -> Result<Self> {
        match path.file_name().filter(|_| !path.exists()) {
            Some(name) => {
                Ok(CnmfDirectory { folder: path.join("cnmf_tmp"), name: name.to_string_lossy().into_owned(), access })
            }
            None => CnmfDirectory::open(path, access),
        }
    }

    /// Makes the directory if there is none.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn create(&self) -> Result<()> {
        std::fs::create_dir_all(&self.folder).map_err(|e| {
            let path = self.folder.parent().unwrap_or(&self.folder).display();
            Error::input(format!("--cnmf {path}: cannot be made ({e}); choose a directory of your own"))
        })
    }

    /// Checks that writing these runs replaces no file that a sweep did not write, and leaves none of another sweep, which
    /// cNMF would combine with them.
    ///
    /// # Errors
    /// Naming the first such file.
    pub fn check(&self, tasks: &[Task]) -> Result<()> {
        let ks: BTreeSet<usize> = tasks.iter().map(|task| task.k).collect();
        let mine: BTreeSet<PathBuf> = tasks.iter().map(|&task| self.file(task)).collect();
        let of_these_k = |path: &Path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            ks.iter().any(|k| name.starts_with(&format!("{}.spectra.k_{k}.iter_", self.name)))
        };
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let other = entries.map(|entry| entry.path()).find(|path| of_these_k(path) && !mine.contains(path));
        if let Some(file) = other {
            return Err(Error::input(format!(
                "--cnmf: {} is of more runs than --runs, and `cnmf combine` would take it for one of them; remove it, or give \
                 --runs as prepared",
                file.display()
            )));
        }
        match tasks.iter().map(|&task| self.file(task)).find(|file| is_foreign(file)) {
            Some(file) => Err(Error::input(format!(
                "--cnmf: {} exists and is not a sweep's, so it is not replaced; prepare another run of cNMF",
                file.display()
            ))),
            None => Ok(()),
        }
    }

    /// Checks that a matrix has the genes that were prepared: `genes` are its n columns.
    ///
    /// # Errors
    /// If they are others, or in another order.
    pub fn check_genes(&self, n: usize, genes: Option<&[String]>) -> Result<()> {
        let counts = self.folder.join(format!("{}.norm_counts.h5ad", self.name));
        let spec = InputSpec::parse(&counts.to_string_lossy())?;
        let Some(prepared) = names::of_path(&counts.to_string_lossy(), &spec).columns else { return Ok(()) };
        let why = match genes.and_then(|genes| genes.iter().zip(&prepared).find(|(own, theirs)| own != theirs)) {
            _ if prepared.len() != n => format!("{} genes, and the matrix has {n} columns", prepared.len()),
            Some((own, theirs)) => format!("the gene {theirs} where the matrix has {own}"),
            None => return Ok(()),
        };
        Err(Error::input(format!("--cnmf: {} has {why}; give it as --input, without --transpose", counts.display())))
    }

    /// Checks that writing the programmes of these k replaces no file that a sweep did not write.
    ///
    /// # Errors
    /// Naming the first such file.
    pub fn check_programs(&self, ks: &[usize], threshold: f64) -> Result<()> {
        let table = |kind: &str| self.folder.join(format!("{}.{kind}.df.npz", self.name));
        let steps = ks.iter().flat_map(|&k| [merged(k), density_cache(k)]).map(|kind| table(&kind));
        let results = || {
            let kinds = ks.iter().flat_map(|&k| RESULTS.map(|kind| kind.replace("{}", &label(k, threshold))));
            // A text has no mark, and is written with its archive.
            kinds.map(|kind| (table(&kind), self.above(format!("{}.{kind}.txt", self.name)))).find_map(
                |(archive, text)| match archive.exists() {
                    true => Some(archive).filter(|archive| is_foreign(archive)),
                    false => Some(text).filter(|text| text.exists()),
                },
            )
        };
        let archives = steps.chain([self.statistics()]).find(|path| is_foreign(path));
        match archives.or_else(results) {
            Some(file) => Err(Error::input(format!(
                "--cnmf: {} exists and is not a sweep's, so it is not replaced; remove it, or prepare another run of cNMF",
                file.display()
            ))),
            None => Ok(()),
        }
    }

    fn file(&self, Task { k, run }: Task) -> PathBuf {
        self.folder.join(format!("{}.spectra.k_{k}.iter_{run}.df.npz", self.name))
    }

    /// Writes V (n × k) of a run. Genes without names have numbers, as pandas would number them.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, task: Task, v: &Array2<f64>, genes: Option<&[String]>) -> Result<()> {
        let (n, k) = v.dim();
        let genes = genes.map_or(Axis::Numbers(0, n), Axis::Names);
        write_table((&self.file(task), self.access), v.t(), Axis::Numbers(1, k), genes)
    }

    /// The transcripts per million of all genes, which `cnmf prepare` wrote.
    pub fn transcripts(&self) -> PathBuf {
        self.folder.join(format!("{}.tpm.h5ad", self.name))
    }

    /// Writes a table for later steps, `cnmf_tmp/NAME.KIND.df.npz`.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write_table(&self, kind: &str, table: ArrayView2<'_, f64>, rows: Axis<'_>, columns: Axis<'_>) -> Result<()> {
        let path = self.folder.join(format!("{}.{kind}.df.npz", self.name));
        write_table((&path, self.access), table, rows, columns)
    }

    /// Writes a table of results: as [`CnmfDirectory::write_table`], and as the text `NAME.KIND.txt`.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write_result(
        &self,
        kind: &str,
        table: ArrayView2<'_, f64>,
        rows: Axis<'_>,
        columns: Axis<'_>,
    ) -> Result<()> {
        self.write_table(kind, table, rows, columns)?;
        let path = self.above(format!("{}.{kind}.txt", self.name));
        let written = unfinished::replace(&path, self.access, |file| {
            let mut out = BufWriter::new(file);
            (0..table.ncols()).try_for_each(|j| write!(out, "\t{}", quoted(&columns.label(j), '\t')))?;
            for (i, row) in table.rows().into_iter().enumerate() {
                write!(out, "\n{}", quoted(&rows.label(i), '\t'))?;
                row.iter().try_for_each(|x| write!(out, "\t{x:?}"))?;
            }
            writeln!(out)?;
            out.flush()
        });
        written.map_err(|e| Error::failed(format!("{}: cannot be written ({e}); check the free space", path.display())))
    }

    /// Writes the table by which the number of components is chosen, a row for each.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write_statistics(&self, table: ArrayView2<'_, f64>) -> Result<()> {
        let columns = ["k", "local_density_threshold", "silhouette", "prediction_error"].map(String::from);
        write_table((&self.statistics(), self.access), table, Axis::Numbers(0, table.nrows()), Axis::Names(&columns))
    }

    fn statistics(&self) -> PathBuf {
        self.above(format!("{}.k_selection_stats.df.npz", self.name))
    }

    fn above(&self, name: String) -> PathBuf {
        self.folder.with_file_name(name)
    }
}

/// Whether there is a file that is not an archive as a sweep writes it.
fn is_foreign(path: &Path) -> bool {
    path.exists() && !Matrices::open(path).is_ok_and(|(archive, _)| archive.is_own())
}

/// The results for one k and threshold, `{}`.
pub const RESULTS: [&str; 5] = [
    "spectra.{}.consensus",
    "usages.{}.consensus",
    "gene_spectra_tpm.{}",
    "gene_spectra_score.{}",
    "starcat_spectra.{}",
];

/// The part of the names of results that has k and the threshold.
pub fn label(k: usize, threshold: f64) -> String {
    format!("k_{k}.dt_{}", format!("{threshold:?}").replace('.', "_"))
}

/// The spectra of all runs.
pub fn merged(k: usize) -> String {
    format!("spectra.k_{k}.merged")
}

/// The density of each of these spectra.
pub fn density_cache(k: usize) -> String {
    format!("local_density_cache.k_{k}.merged")
}

/// The labels of the rows or columns of a table.
#[derive(Debug, Clone, Copy)]
pub enum Axis<'a> {
    Names(&'a [String]),
    /// The first number, and how many follow in order.
    Numbers(usize, usize),
}

impl Axis<'_> {
    fn label(&self, at: usize) -> String {
        match self {
            Axis::Names(names) => names[at].clone(),
            Axis::Numbers(first, _) => (first + at).to_string(),
        }
    }

    fn write(&self, archive: &mut Archive, name: &str) -> Result<()> {
        match *self {
            Axis::Names(names) => archive.texts(name, names),
            Axis::Numbers(first, count) => archive.array(name, "<i8", &[count], &numbers(first..first + count)),
        }
    }
}

fn write_table(
    (path, access): (&Path, Access),
    table: ArrayView2<'_, f64>,
    rows: Axis<'_>,
    columns: Axis<'_>,
) -> Result<()> {
    let (m, n) = table.dim();
    // pandas takes the three arrays as its arguments, and no others.
    let mut archive = Archive::create(path, Map::new(), access)?;
    archive.array("data", "<f8", &[m, n], &bytes(table.iter().map(|x| x.to_le_bytes())))?;
    rows.write(&mut archive, "index")?;
    columns.write(&mut archive, "columns")?;
    archive.finish()?.publish()
}

fn bytes(values: impl Iterator<Item = [u8; 8]>) -> Vec<u8> {
    values.flatten().collect()
}

fn numbers(range: impl Iterator<Item = usize>) -> Vec<u8> {
    bytes(range.map(|i| (i as i64).to_le_bytes()))
}
