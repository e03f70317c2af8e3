//! Stored factors, and a matrix that is used with them: read and prepared as in the run that made the factors, with its rows
//! and columns matched to theirs.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::ops::Range;
use std::path::{Path, PathBuf};

use ndarray::{Array2, ArrayView1, Axis};
use serde::{Deserialize, Serialize};

use fednmf_base::error::{Error, Result};
use fednmf_base::units::counted;
use fednmf_base::warning::warn;
use fednmf_comm::Communicator;
use fednmf_data::assemble::Entries;
use fednmf_data::rare::rare;
use fednmf_data::{Header, NAMES, Panels};
use fednmf_driver::missing::Marks;
use fednmf_driver::progress::Progress;
use fednmf_driver::{metadata, missing, streaming, tell_of_duplicates};
use fednmf_files as data;
use fednmf_files::features::FeatureType;
use fednmf_files::formats::options::TableFormat;
use fednmf_files::names;
use fednmf_files::names::{Match, Names, compare, repeated, unmatched};
use fednmf_files::output::matrices::{Factor, OwnParts, Stored};
use fednmf_files::{Input, InputSpec, TableOptions};
use fednmf_linalg::Block;
use fednmf_methods::parameters::Missing;

use super::provenance::Provenance;

/// The output of a run, with the parameters by which the matrix was prepared.
pub struct StoredFactors {
    /// The path as typed, for messages.
    pub path: PathBuf,
    pub stored: Stored,
    pub run: Provenance,
}

/// Whether a file is one of age, as `join --hold-for` writes results.
fn is_encrypted(path: &Path) -> bool {
    const AGE: &[u8] = b"age-encryption.org/";
    let mut begin = [0; AGE.len()];
    std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut begin)).is_ok() && begin == AGE
}

impl StoredFactors {
    /// Opens an output for its factors.
    ///
    /// # Errors
    /// As [`Stored::open_factors`], and if its parameters make no sense.
    pub fn open(path: &Path) -> Result<StoredFactors> {
        if is_encrypted(path) {
            return Err(Error::input("is encrypted; decrypt it with 'age -d -i KEY' first").at(path.display()));
        }
        let stored = Stored::open_factors(path)?;
        let run = Provenance::of(stored.attributes(), path)?;
        Ok(StoredFactors { path: path.to_path_buf(), stored, run })
    }

    /// U or V.
    ///
    /// # Errors
    /// As [`Factor::open`].
    pub fn factor(&self, name: &'static str) -> Result<Factor<'_>> {
        Factor::open(&self.stored, name)
    }

    /// The factors of each party whose file is beside this shared file, without those that cannot be read.
    pub fn of_parties(&self) -> Vec<StoredFactors> {
        self.stored.files_of_parties().iter().filter_map(|path| StoredFactors::open(path).ok()).collect()
    }

    /// The V of each party, if parties have parts of V of their own.
    ///
    /// # Errors
    /// As [`OwnParts::read`].
    pub fn own_parts(&self, u: &Factor<'_>, v: &Factor<'_>) -> Result<Option<OwnParts>> {
        self.run.own_parts().then(|| OwnParts::read(&self.stored, u, v)).transpose()
    }

    /// Chooses the columns of the run in a file of one party, if the run took those that the files of all parties have, and
    /// the items of transactions.
    pub fn choose_columns(&self, spec: &mut InputSpec) {
        if self.run.common_columns && !spec.by_party() {
            spec.use_columns(&self.stored.names().columns.unwrap_or_default());
        }
        if !spec.transpose {
            // Transactions need not have every item.
            spec.items = self.stored.names().columns.as_deref().and_then(names::items);
        }
    }

    /// Opens the matrix with the preparation of the run. Collective.
    ///
    /// # Errors
    /// As [`data::open`] and [`Provenance::check_usable`].
    pub fn open_input(&self, mut spec: InputSpec, comm: &Communicator) -> Result<OpenedInput<'_>> {
        self.run.check_usable(&self.path).map_err(Error::on_all_ranks)?;
        self.run.apply(&mut spec);
        // Columns are found by name, whatever their type.
        if spec.features.feature_type == FeatureType::Only && self.stored.names().columns.is_some() {
            spec.features.feature_type = FeatureType::All;
        }
        let input = data::open(&spec, comm)?;
        spec.complete(input.header());
        let names = metadata::names_of(&spec, false, comm);
        Ok(OpenedInput { factors: self, spec, input, names })
    }

    fn error(&self, what: impl std::fmt::Display) -> Error {
        Error::input(format!("{}: {what}", self.path.display()))
    }
}

/// The specification of a matrix, before the parameters of the run are applied.
///
/// # Errors
/// The same on all ranks, if `input` cannot be parsed.
pub fn spec_of(input: &str, transpose: bool, table: TableOptions, memory: Option<u64>) -> Result<InputSpec> {
    let spec = InputSpec::parse(input).map_err(Error::on_all_ranks)?;
    Ok(InputSpec { transpose, table, memory, ..spec })
}

/// How the rows or columns of a matrix correspond to the rows of a factor.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Order {
    Same,
    /// Row or column i of the matrix is row `order[i]` of the factor.
    Reordered(Vec<usize>),
    /// Matrix and factor have only some of their names in common.
    Common(Common),
}

/// The columns of a matrix that a factor of another one has too.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Common {
    /// The row of the factor for each column of the matrix, if it has one.
    rows: Vec<Option<usize>>,
    /// Rows of the factor.
    factor_rows: usize,
    /// Whether the matrix has zeros in columns that it does not list, as triples do. Otherwise their entries are unknown.
    others_are_zero: bool,
}

impl Common {
    /// The common columns, and the row of the factor for each.
    fn columns(&self) -> (Vec<usize>, Vec<usize>) {
        self.rows.iter().enumerate().filter_map(|(j, row)| Some((j, (*row)?))).unzip()
    }

    /// Rows of the factor that the matrix has no column for.
    pub fn missing(&self) -> usize {
        self.factor_rows - self.columns().0.len()
    }

    /// Columns of the matrix that the factor has no row for.
    pub fn ignored(&self) -> usize {
        self.rows.len() - self.columns().0.len()
    }

    /// Whether the matrix has zeros in the columns that it lacks.
    pub fn others_are_zero(&self) -> bool {
        self.others_are_zero
    }

    /// The component of the `factor` of which most is in rows without a column of the matrix, as a text: its share of the sum, and the
    /// largest share of another component.
    fn missing_weight(&self, factor: &Array2<f64>) -> String {
        let rows = self.columns().1;
        let share = |component: ArrayView1<'_, f64>| {
            // Noise may have left negative entries.
            let all: f64 = component.iter().map(|x| x.abs()).sum();
            let known: f64 = rows.iter().map(|&row| component[row].abs()).sum();
            if all > 0.0 { (1.0 - known / all).max(0.0) } else { 0.0 }
        };
        let mut shares: Vec<(usize, f64)> =
            factor.columns().into_iter().map(|component| 100.0 * share(component)).enumerate().collect();
        shares.sort_by(|a, b| b.1.total_cmp(&a.1));
        match shares[..] {
            [] => String::new(),
            [(most, share)] => format!(" (they carry {share:.1} % of the weight of component {most})"),
            [(most, share), (_, next), ..] => format!(
                " (they carry {share:.1} % of the weight of component {most}, and at most {next:.1} % of that of any other)"
            ),
        }
    }

    /// What becomes of columns that only the `factor`, or only the matrix `input`, has. `absent`: the missing entries.
    pub fn note(&self, input: &str, absent: &Missing, factor: &Array2<f64>) -> String {
        let missing = match self.others_are_zero {
            true if *absent == Missing::ZeroUnobserved => "do not occur in it, and are missing",
            true => "do not occur in it, and count as zero",
            false => "are missing in it, and are left out of the fit",
        };
        let weight = match self.missing() {
            0 => String::new(),
            _ => self.missing_weight(factor),
        };
        let ignored = match self.ignored() {
            0 => String::new(),
            ignored => format!("; {ignored} of its columns are not in the factors, and are ignored"),
        };
        format!(
            "{input}: {} of the {} columns of the factors {missing}{weight}{ignored}",
            self.missing(),
            self.factor_rows
        )
    }

    /// The rows of the factor for the columns that [`Common::block`] keeps.
    pub fn factor(&self, factor: Array2<f64>) -> Array2<f64> {
        if self.others_are_zero { factor } else { factor.select(Axis(0), &self.columns().1) }
    }

    /// What is known of a block of the matrix: its common columns, or the zeros of the others as well.
    pub fn block(&self, block: &Block<f64>) -> Block<f64> {
        let (columns, rows) = self.columns();
        match block.select(Axis(1), &columns) {
            Block::Sparse(x) if self.others_are_zero => Block::Sparse(x.with_columns_at(&rows, self.factor_rows)),
            selected => selected,
        }
    }

    /// The place in [`Common::block`] of each column of the matrix.
    pub fn places(&self) -> Vec<Option<usize>> {
        if self.others_are_zero {
            return self.rows.clone();
        }
        let mut next = 0..;
        self.rows.iter().map(|row| row.and_then(|_| next.next())).collect()
    }

    /// A factor with a row for each column of the matrix, zero where `known` (of [`Common::factor`]) has none. Where the
    /// other columns are zero it remains the whole factor.
    pub fn spread(&self, known: Array2<f64>) -> Array2<f64> {
        if self.others_are_zero {
            return known;
        }
        let mut all = Array2::zeros((self.rows.len(), known.ncols()));
        self.columns().0.into_iter().zip(known.rows()).for_each(|(j, row)| all.row_mut(j).assign(&row));
        all
    }
}

impl Order {
    /// The rows of the factor in the order of the matrix, if that alone differs.
    pub fn permutation(&self) -> Option<&[usize]> {
        if let Order::Reordered(order) = self { Some(order) } else { None }
    }

    /// The row of the stored factor for row or column i of a matrix with all of its rows.
    pub fn factor_row(&self, i: usize) -> usize {
        self.permutation().map_or(i, |order| order[i])
    }

    /// The row of the stored factor for row or column i of any matrix; `None` if the factor has none.
    pub fn known_row(&self, i: usize) -> Option<usize> {
        if let Order::Common(common) = self { common.rows[i] } else { Some(self.factor_row(i)) }
    }

    /// The row or column of the matrix for each row of the factor; `None` if it is the same.
    pub fn inverse(&self) -> Option<Vec<usize>> {
        let order = self.permutation()?;
        let mut places = vec![0; order.len()];
        order.iter().enumerate().for_each(|(i, &at)| places[at] = i);
        Some(places)
    }

    fn differs(&self) -> bool {
        !matches!(self, Order::Same)
    }
}

/// A matrix whose header is read, with its names on rank 0.
pub struct OpenedInput<'a> {
    factors: &'a StoredFactors,
    spec: InputSpec,
    input: Input,
    names: Names,
}

impl<'a> OpenedInput<'a> {
    fn shape(&self) -> (usize, usize) {
        (self.input.header().rows, self.input.header().cols)
    }

    /// The same matrix, to be matched with other factors of the run: those of a party, or of all.
    pub fn with_factors(self, factors: &StoredFactors) -> OpenedInput<'_> {
        OpenedInput { factors, spec: self.spec, input: self.input, names: self.names }
    }

    /// Whether factors of the run have the shape of the matrix.
    pub fn fits(&self, factors: &StoredFactors) -> bool {
        let rows = |name| factors.factor(name).map(|factor| factor.shape().0);
        matches!((rows("U"), rows("V")), (Ok(m), Ok(n)) if (m, n) == self.shape())
    }

    /// Whether they also have its names, where both have some. On rank 0.
    pub fn belongs_to(&self, factors: &StoredFactors) -> bool {
        let known = factors.stored.names();
        let names = [(&self.names.rows, &known.rows), (&self.names.columns, &known.columns)];
        let differ = |(own, known): (&Option<Vec<String>>, &Option<Vec<String>>)| {
            matches!(compare(own.as_deref(), known.as_deref()), Match::Different(..))
        };
        self.fits(factors) && !names.into_iter().any(differ)
    }

    /// Matches rows with U and columns with V, as in the run: the factors approximate this matrix. Collective.
    ///
    /// # Errors
    /// The same on all ranks, if shapes, the sizes of the parties, orientation or names differ.
    pub fn match_run(self, u: &Factor<'_>, v: &Factor<'_>, comm: &Communicator) -> Result<MatchedInput<'a>> {
        let StoredFactors { path, stored, run } = self.factors;
        let (shape, transposed) = (self.shape(), self.spec.transpose);
        let k = comm.agree_on_error(self.check_shapes(u.shape(), v.shape()))?;
        let sizes = [u, v].into_iter().find_map(Factor::part_sizes);
        self.check_parts(sizes.as_deref()).map_err(Error::on_all_ranks)?;
        let matched = || {
            let known = stored.names();
            if !(are_named(&self.names.rows, &known.rows) && are_named(&self.names.columns, &known.columns)) {
                run.check_orientation(path, shape, transposed)?;
            }
            let rows = order(path, "row", self.names.rows.as_deref(), known.rows.as_deref())?;
            let columns = order(path, "column", self.names.columns.as_deref(), known.columns.as_deref())?;
            Ok((rows, columns, run.reordered(&known, &self.names, shape)))
        };
        let matched = if comm.is_root() { matched() } else { Ok((Order::Same, Order::Same, [false; 2])) };
        let (rows, columns, reordered) = comm.broadcast_value(NAMES, comm.agree_on_error(matched)?);
        run.check_places(path, reordered).map_err(Error::on_all_ranks)?;
        let orders = Orders {
            differ_from_run: [rows.differs() || reordered[0], columns.differs() || reordered[1]],
            rows,
            columns,
        };
        let of_run = Some(sizes.unwrap_or_default());
        Ok(MatchedInput { opened: self, k, v_rows: shape.1, orders, of_run })
    }

    /// Matches the columns with V; the rows are new. Collective.
    ///
    /// # Errors
    /// The same on all ranks, if shape, names or orientation differ.
    pub fn match_columns(self, v: &Factor<'_>, comm: &Communicator) -> Result<MatchedInput<'a>> {
        let (v_rows, k) = v.shape();
        let matched = || {
            let StoredFactors { path, stored, run } = self.factors;
            if !are_named(&self.names.columns, &stored.names().columns) {
                run.check_orientation(path, self.shape(), self.spec.transpose)?;
            }
            self.order_of_columns(v_rows)
        };
        let columns = if comm.is_root() { matched() } else { Ok(Order::Same) };
        let columns = comm.broadcast_value(NAMES, comm.agree_on_error(columns)?);
        let orders = Orders { differ_from_run: [true, columns.differs()], rows: Order::Same, columns };
        Ok(MatchedInput { opened: self, k, v_rows, orders, of_run: None })
    }

    /// Matches the rows with U; the columns are new. Collective.
    ///
    /// # Errors
    /// The same on all ranks, if the number or the names of the rows differ.
    pub fn match_rows(self, u: &Factor<'_>, comm: &Communicator) -> Result<MatchedInput<'a>> {
        let ((u_rows, k), m) = (u.shape(), self.shape().0);
        let matched = || {
            let StoredFactors { path, stored, .. } = self.factors;
            let rows = order(path, "row", self.names.rows.as_deref(), stored.names().rows.as_deref())?;
            if m != u_rows {
                return Err(self.factors.error(format!(
                    "U has {u_rows} rows, one for each row of its matrix, and the new matrix {m}; give the same rows"
                )));
            }
            Ok(rows)
        };
        let rows = if comm.is_root() { matched() } else { Ok(Order::Same) };
        let rows = comm.broadcast_value(NAMES, comm.agree_on_error(rows)?);
        let (v_rows, orders) =
            (self.shape().1, Orders { differ_from_run: [rows.differs(), true], rows, columns: Order::Same });
        Ok(MatchedInput { opened: self, k, v_rows, orders, of_run: None })
    }

    /// The number of components, if U and V have the shape of the matrix.
    fn check_shapes(&self, u: (usize, usize), v: (usize, usize)) -> Result<usize> {
        let (m, n) = self.shape();
        if (u.0, v.0) == (m, n) && u.1 == v.1 {
            return Ok(u.1);
        }
        let (add, other) = if self.spec.transpose { ("omit", "") } else { ("add", " --transpose") };
        let hint = match () {
            () if u.1 != v.1 => "; they are not the factors of one run".to_string(),
            () if (v.0, u.0) == (m, n) => format!("; they fit the transposed one: {add} --transpose"),
            () if v.0 == n => match self.factors.run.is_boolean() {
                true => "; V fits, but new rows have no Boolean factors: factorise all rows together".to_string(),
                false => "; V fits: 'fednmf project' computes U for other rows than those of the run".to_string(),
            },
            () if v.0 == m => {
                format!(
                    "; V fits the transposed one: 'fednmf project{other}' computes U for other rows than those of the run"
                )
            }
            () if self.spec.table.format == TableFormat::Triples && u.0 == m && v.0 > n => {
                format!(
                    "; {} of their columns have no entry in the file, and a file of triples has only columns with one: \
                     'fednmf project' takes them as zeros, and prints the error",
                    v.0 - n
                )
            }
            () if self.spec.table.format == TableFormat::Triples => {
                "; give the matrix that they were made of, or compare single values, as of a test set, with 'fednmf predict'".to_string()
            }
            () => "; give the matrix that they were made of".to_string(),
        };
        Err(self.factors.error(format!(
            "U is {} x {} and V {} x {}, which does not fit a matrix of {m} x {n}{hint}",
            u.0, u.1, v.0, v.1
        )))
    }

    /// Refuses `{party}` files whose sizes are not those of the parties of the run, in this order.
    fn check_parts(&self, factors: Option<&[usize]>) -> Result<()> {
        let files = self.input.parts();
        let Some(factors) = factors.filter(|factors| factors.len() == files.len()) else { return Ok(()) };
        match factors.iter().zip(&files).position(|(own, file)| *own != file.len()) {
            Some(party) => Err(self.factors.error(format!(
                "party {party} has {} rows of its private factor, and its file {}; give the files in the order of the run",
                factors[party],
                files[party].len()
            ))),
            None => Ok(()),
        }
    }

    /// The order of the columns of a matrix of new rows in a V of `v_rows` rows. Without names it has as many.
    fn order_of_columns(&self, v_rows: usize) -> Result<Order> {
        let (m, n) = self.shape();
        let StoredFactors { path, stored, .. } = self.factors;
        let (new, known) = (self.names.columns.as_deref(), stored.names().columns);
        let (sparse_lists, items) =
            (self.spec.table.format == TableFormat::Triples, self.input.header().items.is_some());
        let hint = match (m == v_rows, self.spec.transpose) {
            (true, false) => ": add --transpose",
            (true, true) => ": omit --transpose",
            _ => "",
        };
        if let Some((new, known)) = new.zip(known.as_deref())
            && (sparse_lists || items || !names::are_numbers(new) || !names::are_numbers(known))
            && (v_rows != n || matches!(compare(Some(new), Some(known)), Match::Different(..)))
        {
            let rows = names::places(new, known).map_err(|name| {
                let is_once = known.iter().filter(|other| **other == name).count() == 1;
                let file = self.spec.files().into_iter().next().filter(|_| is_once);
                Error::input(repeated("column", &name)).at(file.as_ref().unwrap_or(path).display())
            })?;
            let first = |names: &[String]| names.first().cloned().unwrap_or_default();
            if rows.iter().all(Option::is_none) {
                return Err(self.factors.error(format!(
                    "no column of the new matrix is among the {v_rows} of the factors (the first ones are {} and {}); both \
                     need the same kind of names{hint}",
                    first(new),
                    first(known)
                )));
            }
            return Ok(Order::Common(Common { rows, factor_rows: v_rows, others_are_zero: sparse_lists }));
        }
        if v_rows != n {
            return Err(self.factors.error(format!(
                "V has {v_rows} rows, one for each column of its matrix, but the new matrix is {m} x {n}; without names it needs \
                 the same columns{hint}"
            )));
        }
        order(path, "column", new, known.as_deref())
    }
}

/// Whether both have names that show which belong together.
fn are_named(new: &Option<Vec<String>>, known: &Option<Vec<String>>) -> bool {
    let both = new.as_deref().zip(known.as_deref());
    both.is_some_and(|(new, known)| !names::are_numbers(new) || !names::are_numbers(known))
}

/// The order in which the rows of a stored factor belong to a matrix whose rows or columns (`what`) have these names.
///
/// # Errors
/// If their names differ.
fn order(path: &Path, what: &str, matrix: Option<&[String]>, stored: Option<&[String]>) -> Result<Order> {
    if let Some(text) = unmatched(what, matrix, "the factors have", stored) {
        warn(&text);
    }
    match compare(matrix, stored) {
        Match::Equal => Ok(Order::Same),
        Match::Reordered(order) => Ok(Order::Reordered(order)),
        Match::Repeated(name) => Err(Error::input(format!("{}: {}", path.display(), repeated(what, &name)))),
        Match::Different(at, matrix, stored) => Err(Error::input(format!(
            "{}: {what} {at} is {matrix} in the matrix, but {stored} in the factors; select the same {what}s first",
            path.display()
        ))),
    }
}

/// The orders of the matrix in the factors.
pub struct Orders {
    pub rows: Order,
    pub columns: Order,
    /// Whether the order of the rows, and of the columns, is known to differ from that in the run.
    pub differ_from_run: [bool; 2],
}

/// A matrix that fits the factors.
pub struct MatchedInput<'a> {
    opened: OpenedInput<'a>,
    k: usize,
    v_rows: usize,
    pub orders: Orders,
    /// The sizes of the parties' parts, if it is the matrix of the run; none if it is of one party.
    of_run: Option<Vec<usize>>,
}

impl MatchedInput<'_> {
    /// The specification with which the matrix was opened.
    pub fn spec(&self) -> &InputSpec {
        &self.opened.spec
    }

    pub fn header(&self) -> &Header {
        self.opened.input.header()
    }

    /// Rows, columns and components.
    pub fn sizes(&self) -> (usize, usize, usize) {
        let (m, n) = self.opened.shape();
        (m, n, self.k)
    }

    /// For use without the errors of the run: what it changed in the matrix is not warned of.
    pub fn without_errors(self) -> Self {
        MatchedInput { of_run: None, ..self }
    }

    /// Prints the notes and warnings on how the matrix is read.
    pub fn print_notes(&self, progress: &mut Progress) {
        progress.notes(&self.header().notes);
        progress.warnings(&self.header().warnings);
    }

    /// Reads the rows of each rank, and the marks of missing entries. Rows that do not fit into memory become panels, unless
    /// `streaming` says why they cannot. Collective.
    ///
    /// # Errors
    /// The same on all ranks, if an entry is refused, or memory is lacking.
    pub fn load(
        self,
        streaming: std::result::Result<(), String>,
        progress: &mut Progress,
        comm: &Communicator,
    ) -> Result<PreparedMatrix> {
        let MatchedInput { opened: OpenedInput { factors, input, names, spec }, k, v_rows, orders, of_run } = self;
        let Header { rows: m, cols: n, sparse, .. } = *input.header();
        let beside = (size_of::<f64>() * k * (m.div_ceil(comm.size()) + v_rows)) as f64;
        let (mut loaded, note) =
            streaming::load_rows(input, beside, streaming, comm, &mut |part| progress.loading(part))?;
        note.iter().for_each(|note| progress.note(note));
        tell_of_duplicates(loaded.duplicates, &spec, progress);
        progress.finish();
        let suppressed = of_run.zip(factors.run.suppressed).map(|(sizes, least)| {
            let by_columns = factors.run.stack() == "columns";
            // Other ranks have other rows of the parties.
            let whole = comm.size() == 1 && (sizes.is_empty() || !orders.differ_from_run[usize::from(by_columns)]);
            let block = loaded.blocks.first().filter(|_| whole && loaded.panels.is_none());
            block.map(|block| with_rare(block, by_columns, least, &sizes)).ok_or(())
        });
        match suppressed {
            None | Some(Ok(0)) => {}
            Some(Ok(count)) => {
                let what = if factors.run.stack() == "columns" { ["row", "rows"] } else { ["column", "columns"] };
                progress.warn(&format!(
                    "the run changed rare entries (--suppress-rare) in {} of this matrix: errors differ from those of the run",
                    counted(count, what[0], what[1])
                ));
            }
            Some(Err(())) => progress.warn(
                "the run changed rare entries (--suppress-rare): if this matrix has some, errors differ from those of the run",
            ),
        }
        let marks = factors.run.missing.marks();
        let marks = marks.map(|file| missing::read(file, (m, n), &names, &loaded.cuts, comm)).transpose()?;
        Ok(PreparedMatrix {
            rows: loaded.cuts.rows[comm.rank()].clone(),
            sparse,
            norm2: loaded.statistics.norm2,
            sum: loaded.statistics.sum,
            nonzeros: loaded.statistics.nonzeros,
            stored_zeros: loaded.stored_zeros,
            panels: loaded.panels.take(),
            block: loaded.blocks.into_iter().next(),
            marks,
            orders,
        })
    }
}

/// The number of columns with entries that are rare in a party's part of the rows, or of rows where parties have columns; `sizes`
/// of the parts are not needed if there is one.
fn with_rare(block: &Block<f64>, by_columns: bool, least: usize, sizes: &[usize]) -> usize {
    let rare = |part: &Block<f64>| Entries::of(part).map(|part| rare(part, by_columns, least)).unwrap_or_default();
    if sizes.len() < 2 {
        return rare(block).len();
    }
    let mut places = 0..;
    let parts = sizes.iter().map(|size| places.by_ref().take(*size).collect::<Vec<_>>());
    let all = parts.flat_map(|part| rare(&block.select(Axis(usize::from(by_columns)), &part)));
    all.map(|(variable, _)| variable).collect::<BTreeSet<_>>().len()
}

/// A rank's rows of the matrix, scaled and thresholded as in the run.
pub struct PreparedMatrix {
    pub rows: Range<usize>,
    /// `None` where `panels` are read instead.
    pub block: Option<Block<f64>>,
    pub panels: Option<Panels<f64>>,
    /// The entries that a file marks as missing.
    pub marks: Option<Marks>,
    pub orders: Orders,
    pub sparse: bool,
    /// ‖X‖² of the whole matrix, and its sum.
    pub norm2: f64,
    pub sum: f64,
    /// Number of nonzeros of the whole matrix.
    pub nonzeros: u64,
    pub stored_zeros: u64,
}

impl PreparedMatrix {
    /// Positions of the marked entries, by row of the block and column of the matrix.
    pub fn marked(&self) -> impl Iterator<Item = (usize, usize)> + use<'_> {
        let places = self.marks.iter().flat_map(|marks| &marks.places.rows);
        places.map(|(i, j)| (i - self.rows.start, *j))
    }
}

/// The whole factor on this rank.
///
/// # Errors
/// As [`Factor::rows`].
pub fn whole(factor: &Factor<'_>) -> Result<Array2<f64>> {
    factor.rows(None, 0..factor.shape().0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_tells_the_weight_of_missing_columns() {
        let v = ndarray::array![[1.0, 2.0], [0.0, 1.0], [4.0, 0.0]];
        let note = |rows: &[Option<usize>]| {
            let common = Common { rows: rows.to_vec(), factor_rows: 3, others_are_zero: false };
            common.note("new.csv", &Missing::None, &v)
        };
        let told = note(&[Some(2), None, Some(0)]);
        assert!(
            told.contains("1 of the 3 columns")
                && told.contains(
                    "(they carry 33.3 % of the weight of component 1, and at most 0.0 % of that of any other)"
                ),
            "{told}"
        );
        assert!(!note(&[Some(2), None, Some(0), Some(1)]).contains('%'));
    }
}
