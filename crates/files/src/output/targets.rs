//! Checks the files that a command writes, before anything is read: each can be written, none is an input or another
//! output, and none replaces a file that fednmf did not write.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use fednmf_base::error::{Error, Result};
use fednmf_base::unfinished::directory;
use fednmf_base::units::bytes;

use crate as data;
use crate::formats::hdf5;
use crate::output::checkpoint;
use crate::output::own_mark;
use crate::output::own_text;
use crate::output::part::check_writable;
use crate::output::party_files;
use crate::output::party_files::PartyName;
use crate::output::stored::Stored;
use crate::output::view::RecordedView;

/// The content that a command writes to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Factors; private factors are written to separate files in the same directory (`F.party-03.h5`).
    Factors,
    /// Factors that are added to an existing AnnData file.
    AddedFactors,
    /// A checkpoint, with party files as well. Whether an existing one may be replaced depends on the data.
    Checkpoint,
    Trace,
    /// The transcript of a rank; never replaced.
    Transcript,
    Report,
    /// The order of merges, a party number on each line.
    Order,
    /// The view of a rank.
    View,
    /// A file with a mark, as [`own_mark::seal`] leaves it.
    Marked,
    /// A table between tabs with this header.
    Table(&'static str),
}

/// A file that a command writes.
#[derive(Debug, Clone)]
pub struct Target<'a> {
    /// The option that gives its path, for messages.
    pub option: &'static str,
    pub path: &'a Path,
    pub content: Content,
}

/// A file that a command reads, with the option that gives its path.
pub type Source = (&'static str, PathBuf);

/// Checks the files that a command writes against each other, against the files that it reads, and against existing files.
///
/// # Errors
/// If a file cannot be written; the message names the option.
pub fn check(targets: &[Target<'_>], sources: &[Source]) -> Result<()> {
    for (i, target) in targets.iter().enumerate() {
        let Target { option, path, content } = target;
        check_name(option, path)?;
        check_writable(path).map_err(|e| e.at(option))?;
        if let Some(refusal) = hdf5::refusal(path).filter(|_| *content == Content::Checkpoint) {
            return Err(refusal.at(option));
        }
        if *content != Content::Trace && !target.may_be_written() {
            return Err(Error::input(format!(
                "{option} {}: is a device or a pipe, not a file; give the name of a file",
                path.display()
            )));
        }
        for (other, source) in sources {
            // Factors may be added to the file of their matrix.
            if *content == Content::AddedFactors && *other == "--input" {
                continue;
            }
            if same(path, source) || target.has_party_file(source) {
                return Err(Error::input(format!(
                    "{option} {}: would overwrite {}, which {other} reads; choose another name{}",
                    path.display(),
                    source.display(),
                    if *content == Content::Factors && path.extension().is_some_and(|e| e == "h5ad") {
                        ", or give --add-to instead to keep the contents and add the factors"
                    } else {
                        ""
                    }
                )));
            }
        }
        for other in &targets[..i] {
            if same(path, other.path) || target.has_party_file(other.path) || other.has_party_file(path) {
                return Err(Error::input(format!(
                    "{option} {}: {} writes to the same file; give each a name of its own",
                    path.display(),
                    other.option
                )));
            }
        }
        check_existing(target)?;
    }
    targets.iter().try_for_each(check_ending)
}

/// Endings that other programs read by, or that people would.
const ENDINGS: [&str; 18] = [
    "csv", "h5", "h5ad", "h5mu", "hdf5", "htm", "html", "jsonl", "loom", "md", "mtx", "ndjson", "npy", "npz",
    "parquet", "pdf", "tsv", "zarr",
];

/// Refuses a name that ends like that of a file of another format, which other programs would take it for.
fn check_ending(target: &Target<'_>) -> Result<()> {
    let Target { option, path, content } = target;
    let (own, what): (&[&str], &str) = match content {
        Content::Checkpoint => (&["h5", "hdf5"], "a checkpoint is an HDF5 file; let its name end in .h5"),
        Content::Trace => {
            (&["jsonl", "ndjson"], "a trace has an event in JSON on each line; let its name end in .jsonl")
        }
        Content::Report => {
            (&["html", "htm"], "a report is an HTML page; let its name end in .html (a browser prints it as PDF)")
        }
        Content::View => (&["npz"], "a view is an archive for NumPy; let its name end in .npz"),
        // Their commands choose the format by the ending.
        Content::Factors | Content::AddedFactors | Content::Marked | Content::Table(_) => return Ok(()),
        // Signed or read by fednmf only.
        Content::Transcript | Content::Order => return Ok(()),
    };
    let is =
        |names: &[&str]| path.extension().is_some_and(|end| names.iter().any(|name| end.eq_ignore_ascii_case(name)));
    if is(&ENDINGS) && !is(own) {
        return Err(Error::input(format!("{option} {}: {what}", path.display())));
    }
    Ok(())
}

/// Checks that a target replaces only files that fednmf wrote. [`check`] includes this; a long run repeats it before it
/// writes its results.
///
/// # Errors
/// If another file would be replaced; the message names the option.
pub fn check_existing(target: &Target<'_>) -> Result<()> {
    let Target { option, path, content } = target;
    target.check_party_files()?;
    // A trace is appended to an existing file, and the file of --add-to has been checked before.
    if !matches!(content, Content::Trace | Content::AddedFactors) {
        check_link(option, path)?;
        if fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().readonly()) {
            return Err(Error::input(format!(
                "{option} {}: exists and is read-only, so it is not replaced; make it writable or choose another name",
                path.display()
            )));
        }
    }
    match foreign(path, *content) {
        None => Ok(()),
        Some(kind) => Err(Error::input(format!(
            "{option} {}: exists and is not {kind} as fednmf wrote it, so it is not replaced; remove it or choose another \
             name",
            path.display()
        ))),
    }
}

/// Refuses to write `need` bytes if the file system has less free space and this can be determined.
///
/// # Errors
/// If the space is insufficient; the message has the place, what needs the space, and the free space.
pub fn check_space(place: &str, path: &Path, what: &str, need: f64) -> Result<()> {
    let Ok(system) = rustix::fs::statvfs(directory(path)) else { return Ok(()) };
    let free = system.f_bavail as f64 * system.f_frsize as f64;
    if need <= free {
        return Ok(());
    }
    Err(Error::input(format!(
        "{place}: {what} at least {} there, and {} are free; choose another directory",
        bytes(need as u64),
        bytes(free as u64)
    )))
}

/// The first path of `F-1.h5`, `F-2.h5`, … at which neither a file nor a party's file exists.
pub fn next_free_path(path: &Path) -> PathBuf {
    let text = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
    let (stem, extension) = (text(path.file_stem()), path.extension().map(|e| format!(".{}", text(Some(e)))));
    let named = |i: usize| path.with_file_name(format!("{stem}-{i}{}", extension.as_deref().unwrap_or_default()));
    let is_free = |path: &PathBuf| fs::symlink_metadata(path).is_err() && party_files::beside(path).is_empty();
    (1..).map(named).find(is_free).unwrap_or_else(|| path.to_path_buf())
}

/// Refuses an output that exists and is not empty: for files that are written once and cannot be distinguished from a user's
/// file.
///
/// # Errors
/// If the file exists and is not empty; the message names `option`, which gives its path.
pub fn check_new(option: &str, path: &Path) -> Result<()> {
    check_name(option, path)?;
    check_link(option, path)?;
    if fs::metadata(path).is_ok_and(|found| !found.is_file() || found.len() > 0) {
        return Err(Error::input(format!(
            "{option} {}: exists and is not replaced; remove it or choose another name",
            path.display()
        )));
    }
    Ok(())
}

/// Refuses `{party}`, which is only for inputs: a command puts the party numbers into the names of its files itself.
fn check_name(option: &str, path: &Path) -> Result<()> {
    if path.to_string_lossy().contains(data::PARTY) {
        return Err(Error::input(format!(
            "{option} {}: {} stands for the parties in --input alone; leave it out, and files of parties get their number \
             by themselves (F.party-00.h5)",
            path.display(),
            data::PARTY
        )));
    }
    Ok(())
}

/// Refuses a symbolic link at the path of an output, even a dangling one: the complete file is renamed to this path and
/// would replace the link. Private data of a party must not follow a link.
fn check_link(option: &str, path: &Path) -> Result<()> {
    let device = || fs::metadata(path).is_ok_and(|found| found.file_type().is_char_device());
    if fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink()) && !device() {
        return Err(Error::input(format!(
            "{option} {}: is a symbolic link, which the output would replace; name the file that it points to, or \
             remove it",
            path.display()
        )));
    }
    Ok(())
}

impl Target<'_> {
    /// Whether the path is free or a file. A report can also be written to a device such as /dev/null.
    fn may_be_written(&self) -> bool {
        fs::metadata(self.path).map_or(true, |found| {
            found.is_file() || self.content == Content::Report && found.file_type().is_char_device()
        })
    }

    /// Checks the party files that belong to this target, which each rank writes, perhaps on a machine of its own.
    ///
    /// # Errors
    /// If one exists that fednmf did not write.
    pub fn check_party_files(&self) -> Result<()> {
        let Some(path) = self.conflicting_party_file() else { return Ok(()) };
        Err(Error::input(format!(
            "{}: {} has the name of a party's file of this output, but fednmf did not write it, or something was added to \
             it; move it or choose another name",
            self.option,
            path.display()
        )))
    }

    /// An existing file or directory that has the name of a party's file of this target, but was not written as such by
    /// fednmf. Empty files may be overwritten.
    fn conflicting_party_file(&self) -> Option<PathBuf> {
        let is_foreign = |path: &Path, name: PartyName| {
            let replaced = match self.content {
                Content::Factors => name.generation.is_none(),
                // The current files of a checkpoint are read if it is resumed, and removed if they are recognised.
                Content::Checkpoint => name.generation.is_some_and(|g| g != checkpoint::generation(self.path)),
                _ => false,
            };
            // A checkpoint that cannot be written does not end the run.
            let in_the_way = |found: fs::Metadata| match found.is_file() {
                true => found.len() > 0 && !name.is_own(path),
                false => self.content == Content::Factors,
            };
            replaced && fs::metadata(path).is_ok_and(in_the_way)
        };
        party_files::beside(self.path).into_iter().find(|(path, name)| is_foreign(path, *name)).map(|(path, _)| path)
    }

    /// Whether `path` has the name of a party's file that belongs to this target.
    fn has_party_file(&self, path: &Path) -> bool {
        matches!(self.content, Content::Factors | Content::Checkpoint)
            && PartyName::of(self.path, path).is_some()
            && canonical(directory(self.path)) == canonical(directory(path))
    }
}

fn canonical(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf())
}

/// Whether two paths are the same file: by device and inode, or, if neither exists, by name. Devices and pipes, such as
/// /dev/null, may be used by several options.
fn same(a: &Path, b: &Path) -> bool {
    match (fs::metadata(a), fs::metadata(b)) {
        (Ok(a), Ok(b)) => a.is_file() && (a.dev(), a.ino()) == (b.dev(), b.ino()),
        (Err(_), Err(_)) => a.file_name() == b.file_name() && canonical(directory(a)) == canonical(directory(b)),
        _ => false,
    }
}

/// The kind of file that may be replaced at `path`, if the existing file is of another kind; `None` if it may be replaced.
fn foreign(path: &Path, content: Content) -> Option<&'static str> {
    let exists = fs::metadata(path).is_ok_and(|m| m.is_file() && m.len() > 0);
    if !exists {
        return None;
    }
    let (own, kind) = match content {
        Content::Factors => (Stored::open(path).is_ok_and(|stored| stored.is_output()), "an output"),
        Content::Trace => (own_text::is_trace(path), "a trace"),
        Content::Report => (own_text::is_report(path), "a report"),
        Content::View => (RecordedView::open(path).is_ok(), "a view"),
        Content::Order => (own_text::is_order(path), "an order of merges"),
        Content::Marked => (own_mark::is_sealed(path), "a file"),
        Content::Table(header) => (own_text::is_table(path, header), "a table"),
        // The transcript itself refuses an existing file.
        Content::AddedFactors | Content::Checkpoint | Content::Transcript => (true, ""),
    };
    (!own).then_some(kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(targets: &[(&'static str, &Path, Content)], sources: &[Source]) -> Option<String> {
        let target = |&(option, path, content)| Target { option, path, content };
        check(&targets.iter().map(target).collect::<Vec<_>>(), sources).err().map(|e| e.message)
    }

    #[test]
    fn a_file_has_one_purpose_however_it_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("in.h5ad"), "x").unwrap();
        fs::hard_link(at("in.h5ad"), at("hard.h5ad")).unwrap();
        std::os::unix::fs::symlink(at("in.h5ad"), at("soft.h5ad")).unwrap();
        let input = [("--input", at("in.h5ad"))];
        for name in ["in.h5ad", "hard.h5ad", "soft.h5ad", "./in.h5ad"] {
            let message = refusal(&[("--output", &at(name), Content::Factors)], &input).unwrap();
            assert!(message.contains("--input") && message.contains("--add-to"), "{name}: {message}");
        }
        // No link is replaced, dangling or not.
        std::os::unix::fs::symlink(at("nothing.h5"), at("dangling.h5")).unwrap();
        std::os::unix::fs::symlink(at("in.h5ad"), at("soft.html")).unwrap();
        for (name, content) in [("dangling.h5", Content::Factors), ("soft.html", Content::Report)] {
            let message = refusal(&[("--x", &at(name), content)], &[]).unwrap();
            assert!(message.contains("symbolic link") && message.contains(name), "{message}");
            assert_eq!(refusal(&[("--x", &at(name), Content::Trace)], &[]).filter(|m| m.contains("link")), None);
        }
        assert!(check_new("--x", &at("dangling.h5")).is_err_and(|e| e.message.contains("symbolic link")));
        let (new, same) = (at("new.h5"), dir.path().join(".").join("new.h5"));
        let both = [("--output", &*new, Content::Factors), ("--checkpoint", &*same, Content::Checkpoint)];
        assert!(refusal(&both, &[]).unwrap().contains("--output"));
        assert_eq!(refusal(&both[..1], &input), None);
        let null = Path::new("/dev/null");
        assert_eq!(refusal(&[("--trace", null, Content::Trace), ("--report", null, Content::Report)], &[]), None);
    }

    #[test]
    fn a_name_that_ends_like_another_format_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for (content, own, others) in [
            (Content::Checkpoint, "c.h5 c.HDF5 c", "c.npz c.h5ad c.jsonl"),
            (Content::Trace, "t.jsonl t.log t.part t", "t.csv t.h5"),
            (Content::Report, "r.html r", "r.pdf r.md"),
            (Content::View, "v.npz", "v.h5 v.npy"),
        ] {
            let refused = |name: &str| refusal(&[("--x", &dir.path().join(name), content)], &[]);
            own.split(' ').for_each(|name| assert_eq!(refused(name), None));
            for name in others.split(' ') {
                assert!(refused(name).is_some_and(|why| why.contains("let its name end in .")), "{name}");
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let check = |need| check_space("--output o.h5", &dir.path().join("o.h5"), "the factors take", need);
        assert_eq!(check(1.0).map_err(|e| e.message), Ok(()));
        let message = check(1e20).unwrap_err().message;
        assert!(
            message.starts_with("--output o.h5: the factors take at least ") && message.contains("are free"),
            "{message}"
        );
    }

    #[test]
    fn party_files_count_as_their_outputs() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let input = [("--input", at("x.party-0.h5"))];
        assert!(refusal(&[("--output", &at("x.h5"), Content::Factors)], &input).is_some());
        assert!(refusal(&[("--checkpoint", &at("x.h5"), Content::Checkpoint)], &input).is_some());
        assert_eq!(refusal(&[("--output", &at("y.h5"), Content::Factors)], &input), None);
        let input = [("--input", at("x.party-0.jsonl"))];
        assert_eq!(refusal(&[("--trace", &at("x.jsonl"), Content::Trace)], &input), None);
    }

    #[test]
    fn files_of_others_are_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        for (name, content) in [("t.jsonl", Content::Trace), ("r.html", Content::Report), ("o.h5", Content::Factors)] {
            let path = dir.path().join(name);
            fs::write(&path, "").unwrap();
            assert_eq!(refusal(&[("--x", &path, content)], &[]), None, "an empty file may be filled");
            fs::write(&path, "my own notes, not to be lost").unwrap();
            assert!(refusal(&[("--x", &path, content)], &[]).unwrap().contains("not replaced"), "{name}");
        }
        let path = dir.path().join("t.jsonl");
        fs::write(&path, "{\"event\":\"start\",\"version\":\"0\"}\n").unwrap();
        assert_eq!(refusal(&[("--trace", &path, Content::Trace)], &[]), None);
    }
}
