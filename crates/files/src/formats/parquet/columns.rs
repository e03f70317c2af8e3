//! The reader. Columns of numbers are those of the matrix; the index of pandas, or a first column that names the rows as in a table
//! in text, are names.

use std::fs::File;
use std::ops::Range;

use parquet::basic::{Compression, ConvertedType, LogicalType, Type};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::DataType;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::schema::types::ColumnDescriptor;
use serde_json::Value;

use fednmf_base::error::{Error, Result};
use fednmf_base::panics::caught;
use fednmf_data::policy::{EntryPolicy, position, rounded};
use fednmf_data::values::Values;
use fednmf_linalg::Real;

use super::Parquet;
use crate::formats::header::LabelDetection;
use crate::formats::io::{InputFile, open};
use crate::formats::like_triples;
use crate::formats::limits::check_shape;
use crate::formats::options::{Names, Presence, TableOptions};
use crate::formats::raw::half;
use crate::formats::reader::DenseReader;
use crate::formats::refusal::Refusal;

/// Rows and columns from which it is inferred whether the first column names the rows, as in a table in text.
const FIRST_ROWS: usize = 64;
const FIRST_COLUMNS: usize = 32;
/// Values that are decoded together.
const TOGETHER: usize = 1 << 16;

/// What a column has.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Numbers(Values),
    Text,
    /// Something else, in words.
    Other(&'static str),
}

fn kind(column: &ColumnDescriptor) -> Kind {
    use ConvertedType as Converted;
    if column.max_rep_level() > 0 || column.path().parts().len() > 1 {
        return Kind::Other("lists or records");
    }
    match (column.logical_type_ref(), column.converted_type()) {
        (Some(LogicalType::Decimal { .. }), _) | (_, Converted::DECIMAL) => {
            return Kind::Other("decimals of a fixed scale");
        }
        (Some(LogicalType::Date | LogicalType::Time { .. } | LogicalType::Timestamp { .. }), _)
        | (
            _,
            Converted::DATE
            | Converted::TIME_MILLIS
            | Converted::TIME_MICROS
            | Converted::TIMESTAMP_MILLIS
            | Converted::TIMESTAMP_MICROS
            | Converted::INTERVAL,
        ) => return Kind::Other("dates or times"),
        (Some(LogicalType::Float16), _) => return Kind::Numbers(Values::Single),
        _ => {}
    }
    match column.physical_type() {
        Type::BOOLEAN | Type::INT32 | Type::INT64 => Kind::Numbers(Values::Whole),
        Type::FLOAT => Kind::Numbers(Values::Single),
        Type::DOUBLE => Kind::Numbers(Values::Double),
        Type::BYTE_ARRAY => Kind::Text,
        Type::INT96 => Kind::Other("dates or times"),
        Type::FIXED_LEN_BYTE_ARRAY => Kind::Other("values of a fixed number of bytes"),
    }
}

/// The open file.
fn reader(file: &InputFile) -> Result<SerializedFileReader<File>> {
    let opened = open(&file.path)?;
    read(file, || SerializedFileReader::new(opened))
}

/// Calls the library, which panics on some damaged files.
fn read<R>(file: &InputFile, call: impl FnOnce() -> std::result::Result<R, ParquetError>) -> Result<R> {
    let done = caught(call).unwrap_or_else(|| Err(ParquetError::General("it is damaged".into())));
    done.map_err(|e| damaged(file, &e))
}

fn damaged(file: &InputFile, e: &ParquetError) -> Error {
    file.error(Refusal::new(format!("cannot be read as Parquet ({e})"), "cannot be read as Parquet"))
}

/// What pandas has noted on the table; `None` if it did not write it.
fn noted_by_pandas(reader: &SerializedFileReader<File>) -> Option<Value> {
    let all = reader.metadata().file_metadata().key_value_metadata()?;
    serde_json::from_str(all.iter().find(|entry| entry.key == "pandas")?.value.as_deref()?).ok()
}

/// The titles of the columns of the index. A range is no column.
fn index_columns(noted: &Value) -> Vec<String> {
    let all = noted["index_columns"].as_array().into_iter().flatten();
    all.filter_map(|title| title.as_str().map(str::to_string)).collect()
}

/// Whether pandas says that the whole numbers of a column stand for lengths of time.
fn are_times(noted: &Value, title: &str) -> bool {
    let mut columns = noted["columns"].as_array().into_iter().flatten();
    let kind = |column: &Value, key: &str| column[key].as_str().unwrap_or_default().to_string();
    columns.any(|column| {
        column["field_name"] == title
            && (kind(column, "numpy_type").starts_with("timedelta")
                || ["timedelta", "period"].iter().any(|of| kind(column, "pandas_type").starts_with(of)))
    })
}

/// The columns of the matrix, its shape, and the type of its numbers.
///
/// # Errors
/// If the file is damaged, has columns without numbers, or a first column of which it is not clear whether it names the rows.
pub fn header(file: &InputFile, options: TableOptions) -> Result<(Parquet, (usize, usize), Values)> {
    let reader = reader(file)?;
    let (meta, noted) = (reader.metadata().file_metadata(), noted_by_pandas(&reader));
    let compressed =
        reader.metadata().row_groups().iter().flat_map(|group| group.columns()).map(|column| column.compression());
    let is_read = |how: &Compression| {
        matches!(how, Compression::UNCOMPRESSED | Compression::SNAPPY | Compression::GZIP(_) | Compression::ZSTD(_))
    };
    if let Some(how) = compressed.into_iter().find(|how| !is_read(how)) {
        let how = how.to_string();
        let codec = how.split('(').next().unwrap_or(&how).to_lowercase();
        return Err(file
            .error(format!("is compressed by {codec}, which is not read; write it with zstd, snappy, gzip or none")));
    }
    let rows = usize::try_from(meta.num_rows()).map_err(|_| file.error("promises a negative number of rows"))?;
    let of_groups =
        reader.metadata().row_groups().iter().try_fold(0i64, |all, group| all.checked_add(group.num_rows()));
    if of_groups != Some(meta.num_rows()) {
        return Err(file.error(format!("promises {rows} rows, and its row groups have another number")));
    }
    let schema = meta.schema_descr();
    let (index, note) = index(file, &reader, options)?;
    let mut columns = (0..schema.num_columns()).collect::<Vec<_>>();
    columns.retain(|column| Some(*column) != index);
    if let Some(j) = index {
        let column = schema.column(j);
        let what = match kind(&column) {
            Kind::Other(what) => Some(what),
            Kind::Numbers(_) if column.physical_type() == Type::BOOLEAN => Some("truth values"),
            Kind::Numbers(_) if noted.as_ref().is_some_and(|noted| are_times(noted, column.name())) => {
                Some("lengths of time")
            }
            _ => None,
        };
        if let Some(what) = what {
            return Err(
                file.error(format!("the names of the rows are {what}; make them text (pandas: df.index.astype(str))"))
            );
        }
        // Unreadable names would be no names.
        read(file, || texts(&reader, j, rows))?;
    }
    let mut values = Values::Whole;
    for &j in &columns {
        let column = schema.column(j);
        let times = noted.as_ref().is_some_and(|noted| are_times(noted, column.name()));
        match kind(&column) {
            Kind::Numbers(found) if !times => values = values.max(found),
            other => {
                let what = match other {
                    Kind::Other(what) => what,
                    Kind::Text => "text",
                    Kind::Numbers(_) => "lengths of time",
                };
                return Err(file.error(Refusal::quoting(column.name().as_bytes(), |title| {
                    format!(
                        "column {title} has {what}, not numbers; leave it out, or make it the index (pandas: set_index)"
                    )
                })));
            }
        }
    }
    let shape = (rows, columns.len());
    check_shape(shape.0, shape.1, None).map_err(|what| file.error(what))?;
    Ok((Parquet { columns, index, note }, shape, values))
}

/// The column with the names of the rows, and a note if it was found by the rule for tables in text.
fn index(
    file: &InputFile,
    reader: &SerializedFileReader<File>,
    options: TableOptions,
) -> Result<(Option<usize>, Option<String>)> {
    let schema = reader.metadata().file_metadata().schema_descr();
    let noted = noted_by_pandas(reader).filter(|_| options.index_col != Presence::No);
    let titles = noted.as_ref().map(index_columns).unwrap_or_default();
    if titles.len() > 1 {
        return Err(file.error("has an index of several columns; make it one (pandas: reset_index, and set_index)"));
    }
    if let Some(title) = titles.first() {
        let at = |&j: &usize| schema.column(j).path().parts().len() == 1 && schema.column(j).name() == title;
        let found = (0..schema.num_columns()).find(at);
        return found.map(|j| (Some(j), None)).ok_or_else(|| file.error("has no column for its index"));
    }
    if schema.num_columns() < 2 || !matches!(kind(&schema.column(0)), Kind::Numbers(_) | Kind::Text) {
        return Ok((None, None));
    }
    // The rule for tables in text, on the first rows as text.
    let looked_at = schema.num_columns().min(FIRST_COLUMNS);
    let titles = schema.columns()[..looked_at].iter().map(|column| column.name().to_string()).collect::<Vec<_>>();
    let rows = usize::try_from(reader.metadata().file_metadata().num_rows()).unwrap_or(0).min(FIRST_ROWS);
    let mut lines = vec![titles];
    lines.resize(rows + 1, Vec::new());
    for j in 0..looked_at {
        let texts = match kind(&schema.column(j)) {
            Kind::Other(_) => vec![String::new(); rows],
            _ => read(file, || texts(reader, j, rows))?,
        };
        lines[1..].iter_mut().zip(texts).for_each(|(line, text)| line.push(text));
    }
    let fields: Vec<Vec<&[u8]>> = lines.iter().map(|line| line.iter().map(String::as_bytes).collect()).collect();
    let found = LabelDetection::of_rows(&fields, TableOptions { header: Presence::Yes, ..options });
    if options.index_col == Presence::Auto
        && schema.num_columns() <= like_triples::MAX_FIELDS
        && let Some(why) = like_triples::why(&fields, true)
    {
        return Err(file.error(why.map(|why| {
            format!(
                "looks like triples, an entry in each row (user, item, value): {why}; store them as .csv for --format triples, or give \
                 --index-col no or yes if each row is one of the matrix"
            )
        })));
    }
    if let Some(why) = found.ambiguity() {
        return Err(file.error(why));
    }
    let first_row = fields.get(1).map_or(&[][..], Vec::as_slice);
    Ok(match found.labels.index_col {
        true => (Some(0), found.note(&fields[0], first_row)),
        false => (None, None),
    })
}

/// The titles of the columns of the matrix, and the names of the rows.
///
/// # Errors
/// As [`header`].
pub fn names(file: &InputFile, options: TableOptions) -> Result<Names> {
    let (Parquet { columns, index, .. }, (rows, _), _) = header(file, options)?;
    let reader = reader(file)?;
    let schema = reader.metadata().file_metadata().schema_descr();
    let titles = columns.iter().map(|&j| schema.column(j).name().to_string()).collect();
    let named = match index {
        Some(j) => Some(read(file, || texts(&reader, j, rows))?),
        None => noted_by_pandas(&reader)
            .filter(|_| options.index_col != Presence::No)
            .and_then(|noted| names_of_range(&noted, rows)),
    };
    Ok((Some(titles), named))
}

/// The names of rows that pandas has noted as a range, unless it is 0, 1, 2, … without a name.
fn names_of_range(noted: &Value, rows: usize) -> Option<Vec<String>> {
    let [range] = &noted["index_columns"].as_array()?[..] else { return None };
    let (start, step) = (range["start"].as_i64()?, range["step"].as_i64()?);
    let says_nothing = start == 0 && step == 1 && range["name"].is_null();
    (range["kind"] == "range" && !says_nothing)
        .then(|| (0..rows as i64).map(|row| start.wrapping_add(step.wrapping_mul(row)).to_string()).collect())
}

/// The first values of a column as text; a missing one is empty.
fn texts(
    reader: &SerializedFileReader<File>,
    column: usize,
    rows: usize,
) -> std::result::Result<Vec<String>, ParquetError> {
    let descriptor = reader.metadata().file_metadata().schema_descr().column(column);
    let mut all = Vec::new();
    for group in 0..reader.num_row_groups() {
        let left = (rows - all.len()).min(usize::try_from(reader.metadata().row_group(group).num_rows()).unwrap_or(0));
        let mut column = Column::open(reader, group, column, &descriptor)?;
        column.texts(left, &mut |text| all.push(text.unwrap_or_default()))?;
    }
    all.resize(rows, String::new());
    Ok(all)
}

/// The values of a column in a row group.
struct Column {
    values: ColumnReader,
    /// The level of an entry that is there; 0 if all are.
    nullable: i16,
    unsigned: bool,
}

impl Column {
    fn open(
        reader: &SerializedFileReader<File>,
        group: usize,
        column: usize,
        descriptor: &ColumnDescriptor,
    ) -> std::result::Result<Self, ParquetError> {
        let unsigned = matches!(descriptor.converted_type(), ConvertedType::UINT_32 | ConvertedType::UINT_64);
        let values = reader.get_row_group(group)?.get_column_reader(column)?;
        Ok(Column { values, nullable: descriptor.max_def_level(), unsigned })
    }

    fn skip(&mut self, count: usize) -> std::result::Result<(), ParquetError> {
        let skipped = match &mut self.values {
            ColumnReader::BoolColumnReader(values) => values.skip_records(count),
            ColumnReader::Int32ColumnReader(values) => values.skip_records(count),
            ColumnReader::Int64ColumnReader(values) => values.skip_records(count),
            ColumnReader::Int96ColumnReader(values) => values.skip_records(count),
            ColumnReader::FloatColumnReader(values) => values.skip_records(count),
            ColumnReader::DoubleColumnReader(values) => values.skip_records(count),
            ColumnReader::ByteArrayColumnReader(values) => values.skip_records(count),
            ColumnReader::FixedLenByteArrayColumnReader(values) => values.skip_records(count),
        }?;
        if skipped == count { Ok(()) } else { Err(ends_early()) }
    }

    /// Passes the next values on as a table in text has them.
    fn texts(&mut self, count: usize, to: &mut dyn FnMut(Option<String>)) -> std::result::Result<(), ParquetError> {
        let (nullable, unsigned) = (self.nullable, self.unsigned);
        match &mut self.values {
            ColumnReader::ByteArrayColumnReader(values) => {
                let mut wrong = false;
                each(values, count, nullable, &mut |x| {
                    to(x.map(|x| {
                        String::from_utf8(x.data().to_vec()).unwrap_or_else(|_| {
                            wrong = true;
                            String::new()
                        })
                    }));
                })?;
                if wrong { Err(ParquetError::General("text is not UTF-8".into())) } else { Ok(()) }
            }
            ColumnReader::Int32ColumnReader(values) => each(values, count, nullable, &mut |x| {
                to(x.map(|&x| if unsigned { x.cast_unsigned().to_string() } else { x.to_string() }));
            }),
            ColumnReader::Int64ColumnReader(values) => each(values, count, nullable, &mut |x| {
                to(x.map(|&x| if unsigned { x.cast_unsigned().to_string() } else { x.to_string() }));
            }),
            ColumnReader::FloatColumnReader(values) => {
                each(values, count, nullable, &mut |x| to(x.filter(|x| !x.is_nan()).map(|x| format!("{x:?}"))))
            }
            ColumnReader::DoubleColumnReader(values) => {
                each(values, count, nullable, &mut |x| to(x.filter(|x| !x.is_nan()).map(|x| format!("{x:?}"))))
            }
            _ => self.numbers(count, &mut |x| to((!x.is_nan()).then(|| x.to_string()))),
        }
    }

    /// Passes the next values on, and NaN for missing ones.
    fn numbers(&mut self, count: usize, to: &mut dyn FnMut(f64)) -> std::result::Result<(), ParquetError> {
        let (nullable, unsigned) = (self.nullable, self.unsigned);
        match &mut self.values {
            ColumnReader::BoolColumnReader(values) => {
                each(values, count, nullable, &mut |x| to(x.map_or(f64::NAN, |&x| f64::from(u8::from(x)))))
            }
            ColumnReader::Int32ColumnReader(values) => each(values, count, nullable, &mut |x| {
                to(x.map_or(f64::NAN, |&x| if unsigned { f64::from(x.cast_unsigned()) } else { f64::from(x) }));
            }),
            ColumnReader::Int64ColumnReader(values) => each(values, count, nullable, &mut |x| {
                to(x.map_or(f64::NAN, |&x| if unsigned { x.cast_unsigned() as f64 } else { x as f64 }));
            }),
            ColumnReader::FloatColumnReader(values) => {
                each(values, count, nullable, &mut |x| to(x.map_or(f64::NAN, |&x| f64::from(x))))
            }
            ColumnReader::DoubleColumnReader(values) => {
                each(values, count, nullable, &mut |x| to(x.map_or(f64::NAN, |&x| x)))
            }
            ColumnReader::FixedLenByteArrayColumnReader(values) => each(values, count, nullable, &mut |x| {
                let bits = x.and_then(|x| x.data().try_into().ok()).map(u16::from_le_bytes);
                to(bits.map_or(f64::NAN, half));
            }),
            _ => Err(ParquetError::General("a column has no numbers".into())),
        }
    }
}

fn ends_early() -> ParquetError {
    ParquetError::General("a column has fewer values than rows".into())
}

/// Passes the next `count` values of a column on; `None` for one that is missing.
fn each<D: DataType>(
    values: &mut ColumnReaderImpl<D>,
    count: usize,
    nullable: i16,
    to: &mut dyn FnMut(Option<&D::T>),
) -> std::result::Result<(), ParquetError> {
    let (mut left, mut levels, mut found) = (count, Vec::new(), Vec::new());
    while left > 0 {
        levels.clear();
        found.clear();
        let levels_of = (nullable > 0).then_some(&mut levels);
        let (records, ..) = values.read_records(left.min(TOGETHER), levels_of, None, &mut found)?;
        if records == 0 {
            return Err(ends_early());
        }
        if nullable == 0 {
            found.iter().for_each(|x| to(Some(x)));
        } else {
            let mut next = found.iter();
            for level in &levels {
                to(if *level == nullable { Some(next.next().ok_or_else(ends_early)?) } else { None });
            }
        }
        left -= records;
    }
    Ok(())
}

/// Reads the columns of the matrix; a line is a column.
pub struct ParquetReader<'a> {
    file: &'a InputFile,
    parquet: &'a Parquet,
    policy: EntryPolicy,
    reader: SerializedFileReader<File>,
    at: Option<Place>,
}

/// How far a column was read.
struct Place {
    line: usize,
    /// The next row.
    row: usize,
    /// The next row group, the rows that are left of this one, and its values.
    next_group: usize,
    left: usize,
    column: Option<Column>,
}

impl<'a> ParquetReader<'a> {
    /// Opens the file.
    ///
    /// # Errors
    /// If it is damaged.
    pub fn open(file: &'a InputFile, parquet: &'a Parquet, policy: EntryPolicy) -> Result<Self> {
        Ok(ParquetReader { file, parquet, policy, reader: reader(file)?, at: None })
    }

    /// Passes rows of a column on.
    fn column(
        &mut self,
        line: usize,
        rows: Range<usize>,
        to: &mut dyn FnMut(f64),
    ) -> std::result::Result<(), ParquetError> {
        let mut place = match self.at.take() {
            Some(place) if place.line == line && place.row <= rows.start => place,
            _ => Place { line, row: 0, next_group: 0, left: 0, column: None },
        };
        let column = self.parquet.columns[line];
        let descriptor = self.reader.metadata().file_metadata().schema_descr().column(column);
        while place.row < rows.end {
            let Some(values) = place.column.as_mut().filter(|_| place.left > 0) else {
                if place.next_group >= self.reader.num_row_groups() {
                    return Err(ends_early());
                }
                let rows_of_group = self.reader.metadata().row_group(place.next_group).num_rows();
                place.left = usize::try_from(rows_of_group).map_err(|_| ends_early())?;
                place.column = Some(Column::open(&self.reader, place.next_group, column, &descriptor)?);
                place.next_group += 1;
                continue;
            };
            let before = place.row < rows.start;
            let count = place.left.min(if before { rows.start } else { rows.end } - place.row);
            if before {
                values.skip(count)?
            } else {
                values.numbers(count, to)?
            };
            place.row += count;
            place.left -= count;
        }
        self.at = Some(place);
        Ok(())
    }
}

impl<T: Real> DenseReader<T> for ParquetReader<'_> {
    fn read(&mut self, lines: Range<usize>, within: Range<usize>, out: &mut [T]) -> Result<()> {
        let mut out = out.iter_mut();
        for line in lines {
            let mut keep = |x: f64| {
                if let Some(out) = out.next() {
                    *out = rounded(x);
                }
            };
            let file = self.file;
            read(file, || self.column(line, within.clone(), &mut keep))?;
        }
        Ok(())
    }

    fn policy(&self) -> EntryPolicy {
        self.policy
    }

    fn refusal(&self, line: usize, at: usize, why: &str) -> Error {
        self.file.error(format!("the entry in {} {why}", position(at, line)))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use parquet::data_type::{
        BoolType, ByteArray, ByteArrayType, DoubleType, FixedLenByteArrayType, Int32Type, Int64Type,
    };
    use parquet::file::metadata::KeyValue;
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
    use parquet::schema::parser::parse_message_type;

    use super::*;

    const M: usize = 700;
    /// Rows of the row groups.
    const GROUPS: [usize; 3] = [300, 1, 399];

    fn column<D: DataType>(group: &mut SerializedRowGroupWriter<'_, File>, values: &[D::T], levels: Option<&[i16]>) {
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<D>().write_batch(values, levels, None).unwrap();
        column.close().unwrap();
    }

    /// A table of names, doubles of which every seventh is missing, whole numbers without sign, and truth values.
    fn write(path: &Path, schema: &str, pandas: Option<&str>) {
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let noted = pandas.map(|text| vec![KeyValue::new("pandas".to_string(), text.to_string())]);
        let properties = WriterProperties::builder().set_key_value_metadata(noted).build();
        let mut writer = SerializedFileWriter::new(File::create(path).unwrap(), schema, Arc::new(properties)).unwrap();
        let mut first = 0;
        for rows in GROUPS {
            let rows = first..first + rows;
            first = rows.end;
            let mut group = writer.next_row_group().unwrap();
            let names: Vec<_> = rows.clone().map(|i| format!("r{i}").as_str().into()).collect();
            column::<ByteArrayType>(&mut group, &names, None);
            let levels: Vec<i16> = rows.clone().map(|i| i16::from(i % 7 != 0)).collect();
            let known: Vec<f64> = rows.clone().filter(|i| i % 7 != 0).map(|i| i as f64 + 0.5).collect();
            column::<DoubleType>(&mut group, &known, Some(&levels));
            column::<Int32Type>(&mut group, &rows.clone().map(|i| -1 - i as i32).collect::<Vec<_>>(), None);
            column::<BoolType>(&mut group, &rows.clone().map(|i| i % 2 == 1).collect::<Vec<_>>(), None);
            column::<Int64Type>(&mut group, &rows.map(|i| i as i64).collect::<Vec<_>>(), None);
            group.close().unwrap();
        }
        writer.close().unwrap();
    }

    const SCHEMA: &str = "message schema { required binary name (UTF8); optional double x; required int32 y (UINT_32); \
                          required boolean z; required int64 w; }";

    fn input(path: &Path) -> InputFile {
        InputFile { path: path.display().to_string(), gz: false, private: false }
    }

    fn entry(i: usize, j: usize) -> f64 {
        match j {
            0 if i.is_multiple_of(7) => f64::NAN,
            0 => i as f64 + 0.5,
            1 => f64::from(u32::MAX) - i as f64,
            2 => f64::from(u8::from(i % 2 == 1)),
            _ => i as f64,
        }
    }

    #[test]
    fn half_precision_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.parquet");
        let schema = "message schema { required int64 id; required fixed_len_byte_array(2) x (FLOAT16); }";
        let (schema, out) = (Arc::new(parse_message_type(schema).unwrap()), File::create(&path).unwrap());
        let mut writer = SerializedFileWriter::new(out, schema, Arc::default()).unwrap();
        let mut group = writer.next_row_group().unwrap();
        column::<Int64Type>(&mut group, &[100, 101, 102], None);
        // 1.5, 0.25 and 65504.
        let halves = [0x3e00u16, 0x3400, 0x7bff].map(|bits| ByteArray::from(bits.to_le_bytes().to_vec()).into());
        column::<FixedLenByteArrayType>(&mut group, &halves, None);
        group.close().unwrap();
        writer.close().unwrap();
        let file = input(&path);
        let (parquet, shape, _) = header(&file, TableOptions::default()).unwrap();
        assert_eq!((parquet.index, shape), (Some(0), (3, 1)));
        let note = "the first column is taken as row names; --index-col no to read the column as data";
        assert_eq!(parquet.note.as_deref(), Some(note));
        let mut reader = ParquetReader::open(&file, &parquet, EntryPolicy::default()).unwrap();
        let mut out = [0.0; 3];
        DenseReader::<f64>::read(&mut reader, 0..1, 0..3, &mut out).unwrap();
        assert_eq!(out, [1.5, 0.25, 65504.0]);
    }

    #[test]
    fn any_part_of_a_table_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.parquet");
        write(&path, SCHEMA, None);
        let file = input(&path);
        let (parquet, shape, values) = header(&file, TableOptions::default()).unwrap();
        assert_eq!((parquet.index, shape, values), (Some(0), (M, 4), Values::Double));
        let (titles, rows) = names(&file, TableOptions::default()).unwrap();
        assert_eq!(titles.unwrap(), ["x", "y", "z", "w"]);
        assert!(rows.unwrap().iter().enumerate().all(|(i, name)| *name == format!("r{i}")));
        let mut reader = ParquetReader::open(&file, &parquet, EntryPolicy::default()).unwrap();
        for (lines, within) in [
            (0..4, 0..M),
            (2..3, 0..M),
            (0..1, 0..10),
            (0..1, 10..305),
            (0..1, 400..M),
            (1..2, 299..302),
            (1..2, 0..1),
            (0..4, 300..301),
            (3..4, M - 1..M),
            (0..0, 0..M),
        ] {
            let mut out = vec![-1.0; lines.len() * within.len()];
            DenseReader::<f64>::read(&mut reader, lines.clone(), within.clone(), &mut out).unwrap();
            for (line, out) in lines.zip(out.chunks(within.len())) {
                for (i, x) in within.clone().zip(out) {
                    assert!(*x == entry(i, line) || x.is_nan() && entry(i, line).is_nan(), "{i} {line}: {x}");
                }
            }
        }
        // A missing value is refused unless it may be missing.
        let mut out = vec![0.0; 8];
        let refused = DenseReader::<f64>::fill(&mut reader, 0..1, 0..8, &mut out).unwrap_err().message;
        assert!(refused.contains("row 0, column 0"), "{refused}");
    }

    #[test]
    fn the_index_is_that_of_pandas_or_found_as_in_a_table() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.parquet");
        let of = |schema: &str, pandas: Option<&str>, options: TableOptions| {
            write(&path, schema, pandas);
            let found = header(&input(&path), options).map(|(parquet, ..)| parquet.index);
            found.map_err(|e| e.message)
        };
        let auto = TableOptions::default();
        let last = "message schema { required binary name (UTF8); optional double x; required int32 y; required boolean z; \
                    required int64 w; }";
        assert_eq!(of(SCHEMA, Some(r#"{"index_columns": ["name"]}"#), auto), Ok(Some(0)));
        assert!(of(last, Some(r#"{"index_columns": ["w"]}"#), auto).unwrap_err().contains("column 'name' has text"));
        assert_eq!(of(SCHEMA, Some(r#"{"index_columns": [{"kind": "range"}]}"#), auto), Ok(Some(0)), "as in a table");
        let yes = TableOptions { index_col: Presence::Yes, ..auto };
        assert_eq!(of(SCHEMA, Some(r#"{"index_columns": ["name"]}"#), yes), Ok(Some(0)));
        let dates = SCHEMA.replace("int64 w", "int64 w (TIMESTAMP_MILLIS)");
        let noted = Some(r#"{"index_columns": ["w"]}"#);
        assert!(of(&dates, noted, auto).unwrap_err().contains("names of the rows are dates or times"));
        assert!(of(SCHEMA, Some(r#"{"index_columns": ["name", "w"]}"#), auto).unwrap_err().contains("several columns"));
        assert!(
            of(SCHEMA, Some(r#"{"index_columns": ["other"]}"#), auto).unwrap_err().contains("no column for its index")
        );
        let no = TableOptions { index_col: Presence::No, ..auto };
        assert!(of(SCHEMA, None, no).unwrap_err().contains("column 'name' has text"));
    }

    #[test]
    fn a_range_of_pandas_names_the_rows_unless_it_counts_from_zero() {
        let noted = |range: &str| serde_json::from_str(&format!(r#"{{"index_columns": [{range}]}}"#)).unwrap();
        let names = |range: &str| names_of_range(&noted(range), 3).map(|names| names.join(","));
        let range = r#"{"kind": "range", "name": null, "start": 3, "stop": 9, "step": 2}"#;
        assert_eq!(names(range).as_deref(), Some("3,5,7"));
        let plain = r#"{"kind": "range", "name": null, "start": 0, "stop": 3, "step": 1}"#;
        assert_eq!(names(plain), None);
        assert_eq!(names(&plain.replace("null", "\"patient\"")).as_deref(), Some("0,1,2"));
        assert_eq!(names(r#""name""#), None);
    }

    /// Written as two columns of whole numbers and one of doubles.
    fn write_numbers(path: &Path, schema: &str, rows: &[(i64, i64, f64)]) {
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let mut writer = SerializedFileWriter::new(File::create(path).unwrap(), schema, Default::default()).unwrap();
        let mut group = writer.next_row_group().unwrap();
        column::<Int64Type>(&mut group, &rows.iter().map(|row| row.0).collect::<Vec<_>>(), None);
        column::<Int64Type>(&mut group, &rows.iter().map(|row| row.1).collect::<Vec<_>>(), None);
        column::<DoubleType>(&mut group, &rows.iter().map(|row| row.2).collect::<Vec<_>>(), None);
        group.close().unwrap();
        writer.close().unwrap();
    }

    #[test]
    fn names_that_are_whole_numbers_are_exact_and_triples_are_no_matrix() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.parquet");
        let rows: Vec<(i64, i64, f64)> = (0..40).map(|i| ((1 << 60) + i, i % 3, 0.5)).collect();
        write_numbers(&path, "message schema { required int64 id; required int64 a; required double b; }", &rows);
        let (titles, named) = names(&input(&path), TableOptions::default()).unwrap();
        assert_eq!(titles.unwrap(), ["a", "b"]);
        assert!(named.unwrap().iter().zip(&rows).all(|(name, row)| *name == row.0.to_string()));
        let ratings: Vec<(i64, i64, f64)> =
            (0..60).map(|i| (i % 9 + 1, i * 7 % 13 + 1, 1.0 + (i % 5) as f64)).collect();
        write_numbers(
            &path,
            "message schema { required int64 userId; required int64 movieId; required double rating; }",
            &ratings,
        );
        let refused = header(&input(&path), TableOptions::default()).unwrap_err().message;
        assert!(refused.contains("looks like triples"), "{refused}");
    }

    #[test]
    fn columns_without_numbers_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.parquet");
        for (columns, what) in [
            ("required int32 y (DATE); required boolean z; required int64 w;", "'y' has dates or times"),
            ("required int32 y (DECIMAL(9, 2)); required boolean z; required int64 w;", "'y' has decimals"),
            ("required int32 y; required boolean z; required int64 w (TIMESTAMP_MILLIS);", "'w' has dates or times"),
        ] {
            write(
                &path,
                &format!("message schema {{ required binary name (UTF8); optional double x; {columns} }}"),
                None,
            );
            let found = header(&input(&path), TableOptions::default()).unwrap_err().message;
            assert!(found.contains(what), "{found}");
        }
    }

    /// No damage makes it panic, or read numbers beyond the file's.
    #[test]
    fn damaged_files_are_refused_or_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.parquet");
        write(&path, SCHEMA, None);
        let whole = std::fs::read(&path).unwrap();
        let mut random = 1u64;
        for i in 0..600 {
            let mut bytes = whole.clone();
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = (random >> 33) as usize % bytes.len();
            if i % 3 == 0 {
                bytes.truncate(at)
            } else {
                bytes[at] ^= 1 << (random >> 60 & 7)
            }
            std::fs::write(&path, &bytes).unwrap();
            let file = input(&path);
            let Ok((parquet, (rows, cols), _)) = header(&file, TableOptions::default()) else { continue };
            let _ = names(&file, TableOptions::default());
            if rows.saturating_mul(cols) < 1 << 20
                && let Ok(mut reader) = ParquetReader::open(&file, &parquet, EntryPolicy::default())
            {
                let mut out = vec![0.0; rows * cols];
                let _ = DenseReader::<f64>::read(&mut reader, 0..cols, 0..rows, &mut out);
            }
        }
    }
}
