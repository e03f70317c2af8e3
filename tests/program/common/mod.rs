//! Runs of fednmf, with or without mpirun, always under a time limit: of the built binary, or in a [`session`].

pub mod processes;
pub mod session;
#[cfg(feature = "sites")]
pub mod sites;

use std::fmt::Write as _;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ndarray::Array2;
use serde_json::Value;

use fednmf_methods::description::{Description, Partition};
use fednmf_methods::registry;

/// The exit code and the output of a process.
#[derive(Debug)]
pub struct Output {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// One invocation: number of ranks (0: without mpirun), arguments, environment.
pub struct Run {
    ranks: usize,
    args: Vec<String>,
    env: Vec<(String, String)>,
    limit: Duration,
    own_process: bool,
}

/// An invocation with arguments split at blanks.
pub fn fednmf(ranks: usize, args: &str) -> Run {
    Run {
        ranks,
        args: args.split_whitespace().map(str::to_string).collect(),
        env: Vec::new(),
        limit: Duration::from_secs(120),
        own_process: false,
    }
}

/// The flags that let an MPI start more ranks than there are cores; MPICH needs none.
pub fn oversubscribe() -> &'static [&'static str] {
    static OPEN_MPI: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    let open = *OPEN_MPI.get_or_init(|| {
        let version = Command::new(mpirun()).arg("--version").output().expect("mpirun is on the PATH");
        String::from_utf8_lossy(&version.stdout).contains("Open MPI")
    });
    if open { &["--oversubscribe"] } else { &[] }
}

/// The launcher of the MPI that the binary was built with (`FEDNMF_MPIRUN` where it is not `mpirun`).
pub fn mpirun() -> String {
    std::env::var("FEDNMF_MPIRUN").unwrap_or_else(|_| "mpirun".to_string())
}

/// `program` under the launcher with that many ranks; its output is piped.
pub fn launch(ranks: usize, program: &Path) -> Command {
    let mut command = Command::new(mpirun());
    command.args(oversubscribe()).args(["-n", &ranks.to_string()]).arg(program);
    quiet(&mut command);
    command
}

/// Sets what all processes of the tests need: no input, piped output, permission to run as root, and ranks that yield
/// while they wait, since there may be more of them than cores.
fn quiet(command: &mut Command) {
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.env("OMPI_MCA_mpi_yield_when_idle", "1");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
}

impl Run {
    /// Adds an argument, which may hold blanks.
    pub fn arg(mut self, arg: impl AsRef<std::ffi::OsStr>) -> Self {
        self.args.push(arg.as_ref().to_string_lossy().into_owned());
        self
    }

    pub fn args(mut self, args: impl IntoIterator<Item = &'static str>) -> Self {
        self.args.extend(args.into_iter().map(str::to_string));
        self
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_string(), value.to_string()));
        self
    }

    pub fn limit(mut self, seconds: u64) -> Self {
        self.limit = Duration::from_secs(seconds);
        self
    }

    /// Makes [`Run::ok`] and [`Run::refused`] start the binary instead of using a session: for tests of memory and of
    /// `main`.
    pub fn own_process(mut self) -> Self {
        self.own_process = true;
        self
    }

    pub fn spawn(&self) -> Child {
        let binary = Path::new(env!("CARGO_BIN_EXE_fednmf"));
        let mut command = if self.ranks == 0 { Command::new(binary) } else { launch(self.ranks, binary) };
        quiet(&mut command);
        command.args(&self.args).envs(self.env.iter().map(|(n, v)| (n, v)));
        command.spawn().expect("the binary starts")
    }

    /// Starts the binary and waits for its end; panics if the time limit passes first.
    pub fn run(self) -> Output {
        let child = self.spawn();
        finish(child, self.limit, &self.describe())
    }

    fn describe(&self) -> String {
        format!("{} ranks: {}", self.ranks, self.args.join(" "))
    }

    fn in_session(&self) -> bool {
        self.env.is_empty() && !self.own_process
    }

    /// Runs and expects success; the parsed `--json` summary.
    pub fn ok(mut self) -> Value {
        let what = self.describe();
        if self.in_session() {
            let done = session::perform(self.ranks, &self.args, self.limit).unwrap_or_else(|why| panic!("{why}"));
            assert_eq!(done.code, 0, "{what}\n{}", done.message);
            return done.summary;
        }
        self.args.extend(["--json".to_string(), "--quiet".to_string()]);
        let output = self.run();
        assert_eq!(output.code, Some(0), "{what}\n{}", output.stderr);
        serde_json::from_str(&output.stdout).unwrap_or_else(|e| panic!("{what}: {e}\n{}", output.stdout))
    }

    /// Runs and expects exit code 2 and one message that contains all of `words`.
    pub fn refused(self, words: &[&str]) {
        let what = self.describe();
        let message = if self.in_session() {
            let done = session::perform(self.ranks, &self.args, self.limit).unwrap_or_else(|why| panic!("{why}"));
            assert_eq!(done.code, 2, "{what}\n{}", done.message);
            done.message
        } else {
            let output = self.run();
            assert_eq!(output.code, Some(2), "{what}\n{}{}", output.stdout, output.stderr);
            let messages = output.stderr.lines().filter(|l| l.starts_with("error: ")).count();
            assert_eq!(messages, 1, "one message: {what}\n{}", output.stderr);
            output.stderr
        };
        for word in words {
            assert!(message.contains(word), "{what}: no '{word}' in\n{message}");
        }
        assert!(!message.contains("panicked") && !message.contains("internal error"), "{message}");
    }
}

/// Waits for a process under a time limit.
pub fn finish(mut child: Child, limit: Duration, what: &str) -> Output {
    let read = |pipe: Option<Box<dyn Read + Send>>| {
        std::thread::spawn(move || {
            let mut text = Vec::new();
            if let Some(mut pipe) = pipe {
                let _ = pipe.read_to_end(&mut text);
            }
            String::from_utf8_lossy(&text).into_owned()
        })
    };
    let stdout = read(child.stdout.take().map(|p| Box::new(p) as Box<dyn Read + Send>));
    let stderr = read(child.stderr.take().map(|p| Box::new(p) as Box<dyn Read + Send>));
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            break status;
        }
        if start.elapsed() > limit {
            let _ = child.kill();
            let _ = child.wait();
            panic!("no end within {limit:?}: {what}");
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    Output {
        code: status.code(),
        stdout: stdout.join().expect("reading does not fail"),
        stderr: stderr.join().expect("reading does not fail"),
    }
}

/// A file of tests/data.
pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// A dataset of an HDF5 file, as f64.
pub fn matrix(path: &Path, name: &str) -> Array2<f64> {
    let file = hdf5::File::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    file.dataset(name).and_then(|d| d.read_2d::<f64>()).unwrap_or_else(|e| panic!("{}/{name}: {e}", path.display()))
}

/// A factor of an output, assembled from the parties' files if it is theirs.
pub fn factor(path: &Path, name: &str) -> Array2<f64> {
    if hdf5::File::open(path).is_ok_and(|file| file.link_exists(name)) {
        return matrix(path, name);
    }
    let stem = format!("{}.party-", path.file_stem().expect("a file").to_string_lossy());
    let folder = std::fs::read_dir(path.parent().expect("a folder")).expect("readable");
    let mut files: Vec<PathBuf> = folder.map(|entry| entry.expect("readable").path()).collect();
    files.retain(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(&stem)));
    files.sort();
    let parts: Vec<Array2<f64>> = files.iter().map(|p| matrix(p, name)).collect();
    let views: Vec<_> = parts.iter().map(|part| part.view()).collect();
    ndarray::concatenate(ndarray::Axis(0), &views).unwrap_or_else(|e| panic!("{}/{name}: {e}", path.display()))
}

/// Arguments that a method needs for the inputs of the tests, and for results that do not depend on the number of
/// ranks.
pub fn needs(method: &Description) -> String {
    let parties = if method.partition.is_private() { "--parties 5" } else { "" };
    let binary = if method.is_boolean() { "--binarize 0.5" } else { "" };
    // Real keys cost seconds and make secrets differ from run to run: the module ppdnmf tests them.
    let plain = match method.name {
        "ppdnmf" => "--plain --secret-seed 1",
        // Products are rounded at random.
        "mpc-columns" | "mpc-rows" => "--secret-seed 1",
        // The digits are whole numbers, of which it allows no release.
        "dsanls-secure" => "--accept-risk sketches",
        _ => "",
    };
    format!("{parties} {binary} {plain}")
}

/// The input of a method: `usual`, or a symmetric matrix (dense or sparse like `usual`) if the method needs one.
pub fn input_for(method: &Description, usual: &str) -> String {
    match method.partition {
        Partition::Symmetric if usual.contains("sparse") => "synthetic:graph,n=60,k=3,density=0.5,noise=0.1".into(),
        // Cosines of the first 40 digits.
        Partition::Symmetric => data("similarity.npy").display().to_string(),
        _ => usual.into(),
    }
}

/// All algorithms, each with the arguments it needs, and again those that have a second way of iterating.
pub fn lines() -> Vec<(&'static Description, String)> {
    let accelerated = |m: &&Description| ["hals", "bpp", "secure-hals"].contains(&m.name);
    let plain = registry::descriptions().map(|m| (m, needs(m)));
    let more = registry::descriptions().filter(|m| accelerated(m)).map(|m| {
        let sweeps = if m.name == "hals" { "--inner-sweeps auto" } else { "" };
        (m, format!("{} {sweeps} --extrapolation restart", needs(m)))
    });
    let sketched = registry::descriptions().filter(|m| m.name == "secure-hals");
    let sketched = sketched.map(|m| (m, format!("{} --sketch subsample", needs(m))));
    // On matrices as small as those of the tests, neither would be chosen by size.
    let sampled = [("dsanls", "--sketch weighted"), ("vr-dsanls", "--epoch 3")];
    let sampled =
        sampled.map(|(name, words)| (registry::find(name).expect("a method").description(), words.to_string()));
    let penalized = [
        ("hals", "--inner-sweeps auto --extrapolation restart"),
        ("bpp", ""),
        ("mu", ""),
        ("online", "--batch-size 60"),
        ("kl-online", "--batch-size 60"),
        ("kl-mu", ""),
        ("dsanls", ""),
        ("vr-dsanls", "--epoch 3"),
        ("syn-sd", ""),
        ("secure-hals", ""),
        ("fnmf", "--normalize none"),
    ];
    let penalized = penalized.map(|(name, words)| {
        let method = registry::find(name).expect("a method").description();
        (method, format!("{} {words} --alpha-u 0.01 --alpha-v 0.002 --l1-ratio 0.4", needs(method)))
    });
    let leverage = registry::descriptions()
        .filter(|m| m.partition == Partition::Symmetric)
        .flat_map(|m| ["--solver hals", "--sketch leverage"].map(|words| (m, words.to_string())));
    // Most digits are 0.
    let completed = ["dsanls", "syn-ssd-uv", "asyn-ssd-v"].map(|name| {
        let method = registry::find(name).expect("a method").description();
        (method, format!("{} --missing zero-unobserved", needs(method)))
    });
    plain.chain(leverage).chain(more).chain(sketched).chain(sampled).chain(penalized).chain(completed).collect()
}

/// Largest |a − b| relative to the largest |a|.
pub fn distance(a: &Array2<f64>, b: &Array2<f64>) -> f64 {
    assert_eq!(a.dim(), b.dim());
    let largest = |m: &Array2<f64>| m.iter().fold(0.0, |l: f64, x| l.max(x.abs()));
    largest(&(a - b)) / largest(a).max(f64::MIN_POSITIVE)
}

/// The `iter` events of a trace: (iteration, relative error).
pub fn errors(trace: &Path) -> Vec<(u64, f64)> {
    events(trace)
        .iter()
        .filter(|e| e["event"] == "iter")
        .map(|e| (e["iter"].as_u64().expect("a count"), e["rel_error"].as_f64().expect("a number")))
        .collect()
}

/// All events of a trace.
pub fn events(trace: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(trace).unwrap_or_else(|e| panic!("{}: {e}", trace.display()));
    text.lines().map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{e}: {l}"))).collect()
}

/// Writes a .npy of rows × columns numbers of a type (`<f8`), from their bytes in row order.
pub fn write_npy(path: &Path, descr: &str, (rows, cols): (usize, usize), entries: &[u8]) {
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({rows}, {cols}), }}");
    while (header.len() + 11) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend(u16::try_from(header.len()).unwrap().to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(entries);
    std::fs::write(path, bytes).unwrap();
}

/// Writes a matrix as a .npy in f64.
pub fn save_npy(path: &Path, x: &Array2<f64>) {
    let entries: Vec<u8> = x.iter().flat_map(|x| x.to_le_bytes()).collect();
    write_npy(path, "<f8", x.dim(), &entries);
}

/// Some of the digits as a .npy of bytes.
pub fn npy(dir: &Path, name: &str, rows: std::ops::Range<usize>) -> PathBuf {
    let all = std::fs::read(data("digits.npy")).unwrap();
    let entries = &all[all.len() - 1797 * 64..][rows.start * 64..rows.end * 64];
    let path = dir.join(name);
    write_npy(&path, "|u1", (rows.len(), 64), entries);
    path
}

/// A number of a summary.
pub fn number(summary: &Value, name: &str) -> f64 {
    summary[name].as_f64().unwrap_or_else(|| panic!("no {name} in {summary}"))
}

/// Writes an n × n matrix with as many entries in each row as in each column, so that it is cut evenly: entry (i, i +
/// offset) for each offset, around the corner too. Returns the positions of its entries.
pub fn write_circulant(path: &Path, n: usize, offsets: &[usize]) -> Vec<(usize, usize)> {
    let places: Vec<_> = (0..n).flat_map(|i| offsets.iter().map(move |offset| (i, (i + offset) % n))).collect();
    let mut text = format!("%%MatrixMarket matrix coordinate real general\n{n} {n} {}\n", places.len());
    for &(i, j) in &places {
        writeln!(text, "{} {} {}", i + 1, j + 1, 1 + (7 * i + 3 * j) % 11).unwrap();
    }
    std::fs::write(path, text).unwrap();
    places
}

/// Writes a directory as 10x does: genes × cells, without the zeros. Each cell has a count of each gene.
pub fn write_10x(dir: &Path, genes: &[String], names: &[String], cells: &[Vec<u64>]) {
    std::fs::create_dir(dir).unwrap();
    let mut entries = Vec::new();
    for (i, _) in genes.iter().enumerate() {
        let found = cells.iter().enumerate().filter(|(_, cell)| cell[i] > 0);
        entries.extend(found.map(|(j, cell)| format!("{} {} {}\n", i + 1, j + 1, cell[i])));
    }
    let head = "%%MatrixMarket matrix coordinate integer general";
    let matrix = format!("{head}\n{} {} {}\n{}", genes.len(), cells.len(), entries.len(), entries.concat());
    let genes: String = genes.iter().map(|name| format!("{name}\t{name}\n")).collect();
    for (file, text) in [("matrix.mtx", matrix), ("genes.tsv", genes), ("barcodes.tsv", names.join("\n") + "\n")] {
        std::fs::write(dir.join(file), text).unwrap();
    }
}
