//! The guide and the README: every algorithm has a page, every link has a target, every command runs.
//!
//! In a block that begins with ```sh the lines that begin with `fednmf` or `mpirun` are run by a shell. A block that
//! begins with ```sh,norun (a queue, data that is not here) is only parsed.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::tempdir;

use fednmf_methods::registry;

use crate::common::{finish, mpirun, oversubscribe};
use crate::consortium::{Form, write_raw};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The pages of the guide.
fn pages() -> Vec<PathBuf> {
    let mut all = Vec::new();
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
            if entry.is_dir() {
                folders.push(entry);
            } else if entry.extension().is_some_and(|e| e == "md") {
                all.push(entry);
            }
        }
    }
    all.sort();
    all
}

/// The documents outside the guide.
const DOCUMENTS: [&str; 9] = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "ARCHITECTURE.md",
    "SECURITY.md",
    "CODE_OF_CONDUCT.md",
    "packaging/README.md",
    "bench/README.md",
    "examples/README.md",
];

/// Link targets that are not URLs.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let ends = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    ends.filter(|link| !link.contains("://"))
}

#[test]
fn every_algorithm_has_a_page_and_every_link_has_a_target() {
    let summary = text(&root().join("docs/SUMMARY.md"));
    for method in registry::descriptions() {
        let page = format!("guide/algorithms/{}.md", method.name);
        assert!(summary.contains(&format!("({page})")), "docs/SUMMARY.md lacks {page}");
        let told = text(&root().join("docs").join(&page));
        for word in ["**When.**", "**Equations", "**Departures.**", &format!("--algo {} ", method.name)] {
            assert!(told.contains(word), "{page} lacks {word}");
        }
        // In one section or several.
        let told = told.to_lowercase();
        assert!(["costs", "reveals"].iter().all(|word| told.contains(word)), "{page}: what it costs or reveals");
    }
    for path in pages().into_iter().chain(DOCUMENTS.map(|name| root().join(name))) {
        for link in links(&text(&path)) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            assert!(target.exists(), "{}: {link} does not exist", path.display());
            let there = |line: &str| line.starts_with('#') && slug(line) == heading;
            assert!(heading.is_empty() || text(&target).lines().any(there), "{}: no heading {link}", path.display());
        }
        let listed =
            path.file_name().is_some_and(|name| name == "SUMMARY.md") || !path.starts_with(root().join("docs"));
        let name = path.strip_prefix(root().join("docs")).unwrap_or(&path).display().to_string();
        assert!(listed || summary.contains(&format!("({name})")), "docs/SUMMARY.md does not list {name}");
    }
}

/// The prose of a document in paragraphs: without blocks of code, tables and headings. Code in a line is a word.
fn paragraphs(document: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut in_code = false;
    for line in document.lines().map(str::trim) {
        in_code ^= line.starts_with("```");
        let item = line
            .strip_prefix("- ")
            .or_else(|| line.split_once(". ").filter(|(n, _)| n.parse::<u8>().is_ok()).map(|i| i.1));
        let ends = line.is_empty() || line.starts_with(['#', '|', '<', '!']) || line.starts_with("```");
        if ends || in_code || item.is_some() {
            all.push(String::new());
        }
        if !ends && !in_code {
            let last = all.last_mut().expect("a paragraph");
            *last += item.unwrap_or(line);
            last.push(' ');
        }
    }
    let plain = |text: String| {
        let words = text.split('`').enumerate().map(|(i, part)| if i % 2 == 1 { "code" } else { part });
        let text = words.collect::<String>();
        let mut parts = text.split("](");
        let first = parts.next().unwrap_or_default().to_string();
        first + &parts.map(|part| part.split_once(')').map_or("", |(_, rest)| rest)).collect::<String>()
    };
    all.into_iter().filter(|text| !text.is_empty()).map(plain).collect()
}

/// A sentence that must be read twice is too long.
#[test]
fn sentences_are_short() {
    let ends = |word: &str| {
        let word = word.trim_end_matches([')', '"', '*', '”']);
        word.ends_with(['.', '!', '?', ':']) && !["al.", "e.g.", "i.e.", "cf."].contains(&word)
    };
    let generated = ["docs/reference.md", "docs/reference/command-line.md", "docs/reference/python.md"];
    let documents = pages().into_iter().filter(|path| !generated.iter().any(|page| path.ends_with(page)));
    for path in documents.chain(DOCUMENTS.map(|name| root().join(name))) {
        let mut lengths = Vec::new();
        for paragraph in paragraphs(&text(&path)) {
            let words: Vec<&str> = paragraph
                .split_whitespace()
                .filter(|word| word.contains(char::is_alphanumeric) || ends(word))
                .collect();
            for sentence in words.split_inclusive(|word| ends(word)) {
                lengths.push(sentence.len());
                assert!(sentence.len() <= 30, "{}: {} words: {}", path.display(), sentence.len(), sentence.join(" "));
            }
        }
        let mean = lengths.iter().sum::<usize>() as f64 / lengths.len().max(1) as f64;
        assert!(mean <= 18.0, "{}: {mean:.1} words a sentence", path.display());
    }
}

/// The tests that the table of features names exist, and each tick of ours has a test or a command.
#[test]
fn every_feature_has_a_test_or_a_command() {
    let table = text(&root().join("docs/guide/features.md"));
    let rows = table
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| feature") && !line.starts_with("| ---"));
    let mut ticks = 0;
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let &[feature, ours, .., proof] = cells.as_slice() else { panic!("{row}") };
        assert_eq!(cells.len(), 9, "{row}");
        if ours == "–" {
            assert!(proof.contains("(#what-is-left-out)"), "{feature}: {proof}");
            continue;
        }
        ticks += 1;
        let proof = proof.trim_matches('`');
        if let Some((module, test)) = proof.split_once("::") {
            let places = ["tests/program/{}.rs", "src/{}/tests.rs"].map(|place| place.replace("{}", module));
            let found = places.iter().map(|place| root().join(place)).filter(|path| path.exists());
            let mut texts = found.map(|path| text(&path));
            assert!(texts.any(|text| text.contains(&format!("fn {test}()"))), "{feature}: no test {proof}");
        } else if let Some(name) = proof.strip_prefix("--algo ") {
            assert!(registry::find(name).is_some(), "{feature}: {proof}");
        } else {
            let there = root().join(format!("tests/program/{proof}.rs")).exists();
            let there = there || ["make python", "make r"].contains(&proof);
            assert!(
                there || fednmf::cli::parse(words(proof).into_iter().map(Into::into)).is_ok(),
                "{feature}: {proof}"
            );
        }
    }
    assert!(ticks > 25, "{ticks}");
}

/// Each finding of the review names a test that exists.
#[test]
fn every_finding_has_a_test() {
    let page = text(&root().join("docs/privacy/attacks.md"));
    let (_, findings) = page.split_once("## Findings of a review").unwrap();
    let rows: Vec<&str> = findings.lines().filter(|line| line.starts_with("| ") && line.contains("::")).collect();
    for row in &rows {
        let (place, test) = row.split('`').find(|part| part.contains("::")).unwrap().split_once("::").unwrap();
        let path = if place.ends_with(".rs") { place.to_string() } else { format!("tests/program/{place}.rs") };
        assert!(text(&root().join(&path)).contains(&format!("fn {test}()")), "{path}: no test {test}");
    }
    assert!(rows.len() > 30, "{}", rows.len());
}

/// The anchor of a heading.
fn slug(line: &str) -> String {
    let kept = line.trim_start_matches('#').trim().to_lowercase();
    kept.chars()
        .filter_map(|c| if c == ' ' { Some('-') } else { (c.is_alphanumeric() || matches!(c, '-' | '_')).then_some(c) })
        .collect()
}

/// The commands of fednmf and of launchers in a document, and whether to run them.
fn commands(document: &str) -> Vec<(String, bool)> {
    let mut all = lines_of_blocks(document);
    all.retain(|(line, _)| line.starts_with("fednmf") || line.starts_with("mpirun"));
    all
}

/// The lines of the blocks for a shell, and whether to run them.
fn lines_of_blocks(document: &str) -> Vec<(String, bool)> {
    let mut all = Vec::new();
    let mut run = None;
    let mut begun = String::new();
    for line in document.lines().map(str::trim) {
        match (line, run) {
            ("```sh", None) => run = Some(true),
            ("```sh,norun", None) => run = Some(false),
            ("```", _) => run = None,
            (_, Some(run)) => {
                begun += line;
                if let Some(more) = begun.strip_suffix('\\') {
                    begun = more.to_string();
                    continue;
                }
                all.push((std::mem::take(&mut begun), run));
            }
            _ => {}
        }
    }
    all
}

/// The arguments of fednmf in a command, without the launcher, the comment, and the shell's part.
fn words(command: &str) -> Vec<String> {
    let plain = command.split(" #").next().unwrap_or(command).split(" || ").next().unwrap_or(command);
    let from = plain.find("fednmf").unwrap_or(0);
    plain[from..].split_whitespace().map(|word| word.trim_matches('\'').to_string()).collect()
}

fn script(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Runs the commands of a document in one shell, in a directory that `prepare` fills.
fn run(document: &Path, prepare: impl FnOnce(&Path)) {
    let all = commands(&text(document));
    for (command, _) in &all {
        let parsed = fednmf::cli::parse(words(command).into_iter().map(Into::into));
        assert!(parsed.is_ok(), "{}: {command}: {}", document.display(), parsed.err().unwrap());
    }
    let lines: Vec<&str> = all.iter().filter(|(_, run)| *run).map(|(line, _)| line.as_str()).collect();
    if !lines.is_empty() {
        in_a_shell(&lines, &document.display().to_string(), prepare);
    }
}

/// Runs lines in one shell, in a directory that `prepare` fills. Returns what they print.
fn in_a_shell(lines: &[&str], what: &str, prepare: impl FnOnce(&Path)) -> String {
    let dir = tempdir().unwrap();
    let bin = dir.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_fednmf"), bin.join("fednmf")).unwrap();
    // Reduces the number of ranks to what a small machine supports.
    let launcher = which(&mpirun());
    let launcher = format!("{} {}", launcher.display(), oversubscribe().join(" "));
    script(
        &bin.join("mpirun"),
        &format!("#!/bin/sh\nshift\nn=$1\nshift\n[ \"$n\" -le 2 ] || n=2\nexec {launcher} -n \"$n\" \"$@\"\n"),
    );
    let work = dir.path().join("work");
    std::fs::create_dir(&work).unwrap();
    prepare(&work);
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let shell = Command::new("sh")
        .args(["-exc", &lines.join("\n")])
        .current_dir(&work)
        .env("PATH", path)
        // Launchers that start and end at the same time interfere if they share a directory for their files.
        .env("TMPDIR", dir.path())
        .envs([
            ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
            ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
            ("OMPI_MCA_mpi_yield_when_idle", "1"),
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a shell");
    let done = finish(shell, Duration::from_secs(120), what);
    assert_eq!(done.code, Some(0), "{what}\n{}{}", done.stdout, done.stderr);
    done.stdout
}

/// The words of a text, without numbers of seconds and bytes, which the README leaves out as `…`.
fn unmeasured(text: &str) -> Vec<Vec<&str>> {
    text.lines()
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let is_measured = |at: usize| {
                let unit = words.get(at + 1).map_or("", |unit| unit.trim_end_matches([',', ';', ')']));
                ["s", "KiB", "MiB", "GiB"].contains(&unit) && (words[at] == "…" || words[at].parse::<f64>().is_ok())
            };
            (0..words.len()).map(|at| if is_measured(at) { "#" } else { words[at] }).collect()
        })
        .collect()
}

/// What the README shows in blocks of ```console is what its commands print, but for seconds and bytes.
#[test]
fn the_readme_shows_what_its_commands_print() {
    let readme = text(&root().join("README.md"));
    let shown: Vec<&str> = readme.split("```console\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(!shown.is_empty());
    for block in shown {
        let commands = block.lines().filter_map(|line| line.strip_prefix("$ "));
        let lines: Vec<String> =
            commands.flat_map(|command| [format!("echo '$ {command}'"), command.to_string()]).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let printed = in_a_shell(&lines, "README.md", data_of_the_readme);
        assert_eq!(unmeasured(&printed), unmeasured(block), "{printed}");
    }
}

/// The path of a program.
fn which(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|dir| dir.join(name)).find(|p| p.is_file());
    found.unwrap_or_else(|| PathBuf::from(name))
}

/// Creates the files that the README's commands use.
fn data_of_the_readme(work: &Path) {
    let counts = work.join("counts.mtx");
    let made = crate::common::fednmf(0, "generate sparse,m=200,n=100,density=0.1 --output").arg(&counts).run();
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, &std::fs::read(&counts).unwrap()).unwrap();
    std::fs::write(work.join("counts.mtx.gz"), packed.finish().unwrap()).unwrap();
    std::fs::create_dir_all(work.join("tests/data")).unwrap();
    std::fs::copy(crate::common::data("digits.npy"), work.join("tests/data/digits.npy")).unwrap();
}

/// Creates the files that the guide's commands use and do not make.
fn data_of_the_guide(work: &Path) {
    std::fs::write(work.join("table.csv"), ",0,1\n0,5.5,1\n1,2,3.5\n2,4,4\n").unwrap();
    let ratings = "user,item,rating\nann,tea,5\nbob,tea,3\nbob,milk,4\nann,rice,1\n";
    std::fs::write(work.join("ratings.csv"), ratings).unwrap();
    (0..3).for_each(|site| write_raw(&work.join(format!("raw-{site}.csv")), site, Form::Cells));
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn every_command_of_the_readme_runs() {
    run(&root().join("README.md"), data_of_the_readme);
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn every_command_of_the_guide_runs() {
    let all = pages();
    let told: usize = all.iter().map(|path| commands(&text(path)).len()).sum();
    assert!(told > 50, "only {told} commands: are the blocks marked?");
    // Most of the time is process start-up.
    std::thread::scope(|scope| {
        for part in 0..4 {
            let mine = all.iter().skip(part).step_by(4);
            scope.spawn(move || mine.for_each(|path| run(path, data_of_the_guide)));
        }
    });
}

/// An address of this machine that is free.
fn free_address() -> std::net::SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).unwrap()
}

/// Starts the hub and the sites of a page in the background, at a `free` address, and waits for them before the next command; for a hub
/// that stays, not at all.
fn with_sites(commands: &[(String, bool)], free: std::net::SocketAddr) -> Vec<String> {
    let (mut lines, mut started, mut busy) = (Vec::new(), 0, Vec::new());
    let wait = |lines: &mut Vec<String>, started: &mut usize| {
        (1..=std::mem::take(started)).for_each(|process| lines.push(format!("wait $p{process}")));
    };
    for (command, _) in commands {
        let command = command.replace("localhost:7443", &format!("localhost:{}", free.port()));
        let command = command.replace("fednmf serve", &format!("fednmf serve --listen {free}"));
        if command.contains("fednmf serve --listen") && command.contains("--keep") {
            lines.push(format!("{command} & hub=$!"));
            lines.push("trap 'kill $hub' EXIT".into());
        } else if ["fednmf serve", "fednmf join", "sh "].iter().any(|start| command.starts_with(start)) {
            let is_of = |site: &&str| {
                [format!("keys/{site}.pem"), format!("runs.sh {site}")].iter().any(|w| command.contains(w))
            };
            let site = ["north", "south", "west"].into_iter().find(is_of);
            // Each site does one thing after the other.
            if busy.contains(&site) {
                wait(&mut lines, &mut started);
                busy.clear();
            }
            busy.push(site);
            started += 1;
            lines.push(format!("{command} & p{started}=$!"));
        } else {
            wait(&mut lines, &mut started);
            busy.clear();
            lines.push(command);
        }
    }
    wait(&mut lines, &mut started);
    lines
}

/// From the files to the result and the list of what was sent.
#[test]
#[cfg(feature = "sites")]
fn three_hospitals_get_their_result() {
    let page = text(&root().join("docs/guide/sealed.md"));
    let all = commands(&page);
    assert_eq!(all.iter().filter(|(line, _)| line.contains("fednmf join")).count(), 3);
    let mut lines = with_sites(&all, free_address());
    lines.push("ls north.h5 south.h5 west.h5 north.party-00.h5 west.party-02.h5".to_string());
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let policy = page.split("```json\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap().to_string();
    let printed = in_a_shell(&lines, "docs/guide/sealed.md", |work| {
        std::fs::write(work.join("policy.json"), policy).unwrap();
        for (name, variables) in
            [("north", "age,bmi,pulse,systolic"), ("south", "crp,ldl,hba1c"), ("west", "walk,sleep,steps")]
        {
            let mut table = format!("id,{variables}\n");
            for patient in 0..60 {
                // Mixtures of three kinds of patients.
                let kinds = [patient % 5, patient % 7, patient % 3];
                let entry =
                    |j: usize| kinds.iter().enumerate().map(|(l, x)| x * ((j + name.len() * l) % 4)).sum::<usize>();
                let line: Vec<String> = (0..variables.split(',').count()).map(|j| (1 + entry(j)).to_string()).collect();
                table += &format!("p{patient:03},{}\n", line.join(","));
            }
            std::fs::write(work.join(format!("{name}.csv")), table).unwrap();
        }
    });
    let opened: Vec<&str> = printed.lines().filter(|line| line.contains("shared factor, opened")).collect();
    assert!(opened.iter().any(|line| line.contains("in the clear")), "{printed}");
}

/// From raw counts that do not match to the programmes, and the cells of a hospital that comes later.
#[test]
#[cfg(feature = "sites")]
fn three_hospitals_get_their_programmes() {
    let page = text(&root().join("docs/guide/consortium.md"));
    // If one of them ends early, the others do too.
    let page = page.replace("fednmf join", "fednmf join --wait 30 --patience 10");
    let block = |fence: &str| page.split(fence).nth(1).and_then(|rest| rest.split("```").next()).unwrap().to_string();
    let (job, _) = page.split_once("## In one job").unwrap();
    let free = free_address();
    let mut lines = with_sites(&lines_of_blocks(job), free);
    let names = "north-cells.csv south-cells.csv west-cells.csv north-weights.h5 later-weights.h5 west-sealed-k4-2.h5";
    lines.push(format!("ls {names} south-dp-k4-1.h5 west-kl-k5-2.h5"));
    // Runs that are finished are not run again.
    lines.push("sh runs.sh north kl '3 4 5' --algo fed-kl | grep -c 'is there already'".into());
    lines.push("cmp north-cnmf/north-cnmf.gene_spectra_score.k_4.dt_0_5.txt west-cnmf/west-cnmf.gene_spectra_score.k_4.dt_0_5.txt".into());
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let printed = in_a_shell(&lines, "docs/guide/consortium.md", |work| {
        std::fs::write(work.join("policy.json"), block("```json\n")).unwrap();
        let port = format!("localhost:{}", free.port());
        std::fs::write(work.join("runs.sh"), block("```bash\n").replace("localhost:7443", &port)).unwrap();
        let files = [("north.csv", Form::Cells), ("south", Form::TenX), ("west.csv", Form::Genes)];
        files.into_iter().enumerate().for_each(|(site, (name, form))| write_raw(&work.join(name), site, form));
    });
    assert!(printed.contains("recommended: k = 4") && printed.lines().any(|line| line == "6"), "{printed}");
    let sent = |line: &str| line.contains("sums and squares of the columns") && line.contains("masked");
    assert!(printed.lines().any(sent), "{printed}");
}

/// The recipes for clusters name existing files and the versions that the build requires.
#[test]
fn recipes_name_existing_files_and_versions() {
    let recipe = text(&root().join("jobs/fednmf.def"));
    let files = recipe.lines().map(str::trim).filter_map(|line| line.split_once(" /src/"));
    let named: Vec<&str> = files
        .map(|(from, to)| {
            assert_eq!(from, to);
            from
        })
        .collect();
    assert!(named.iter().all(|name| root().join(name).exists()), "{named:?}");
    // Both containers have the same libraries.
    let dockerfile = text(&root().join("packaging/docker/Dockerfile"));
    let installed = |text: &str, last: &str| {
        let line = text.lines().rfind(|line| line.contains("libopenmpi")).unwrap_or_default();
        let mut names: Vec<String> = line
            .split_whitespace()
            .filter(|word| word.starts_with("lib") || word.contains("openmpi") || word.contains("openssh"))
            .map(String::from)
            .collect();
        names.sort_unstable();
        assert!(names.len() > 3, "{last}: {line}");
        names
    };
    assert_eq!(installed(&recipe, "jobs/fednmf.def"), installed(&dockerfile, "Dockerfile"));
    // Cargo requires the targets of the manifest to exist.
    assert!(
        ["Cargo.toml", "Cargo.lock", "src", "build.rs", "bench", "tests", "Makefile", "jobs"]
            .iter()
            .all(|f| named.contains(f))
    );
    let package = text(&root().join("packaging/spack/spack_repo/fednmf/packages/fednmf/package.py"));
    let manifest = text(&root().join("Cargo.toml"));
    let rust = manifest.lines().find_map(|l| l.strip_prefix("rust-version = \"")).unwrap().trim_end_matches('"');
    assert!(package.contains(&format!("rust@{rust}:")), "rust {rust}");
    for word in package.split(['"', '\'']).filter(|word| word.starts_with("--") || word.starts_with("synthetic:")) {
        assert!(
            ["--locked", "--no-default-features", "--features", "--input", "--max-iters"].contains(&word)
                || word.starts_with("synthetic:"),
            "{word}"
        );
    }
}

/// A run that begins anew on the same data tells more than one that resumes, so services never begin one again by themselves.
#[test]
fn services_resume_what_they_start_again() {
    let unit = text(&root().join("packaging/sites/fednmf-join@.service"));
    let restarts = unit.lines().any(|line| line.starts_with("Restart=") && line != "Restart=no");
    assert!(restarts && unit.contains("--checkpoint %S/fednmf/%i-state.h5 --resume"), "{unit}");
    // A run may have a policy of its own, and none has no policy.
    let [default, own] = ["Environment=POLICY=", "EnvironmentFile="].map(|line| unit.find(line));
    assert!(default.is_some() && default < own && unit.contains(" --policy ${POLICY} "), "{unit}");
    let hub = text(&root().join("packaging/sites/fednmf-hub.service"));
    assert!(hub.contains("--journal %S/fednmf/hub.journal"), "{hub}");
    let compose = text(&root().join("packaging/sites/compose.yaml"));
    assert_eq!(compose.matches("restart:").count(), 1, "the hub's alone: {compose}");
}

/// Recipes that are Python parse as such.
#[test]
fn recipes_in_python_are_python() {
    let easyconfig = format!("packaging/easybuild/fednmf-{}-gompi-2025b.eb", env!("CARGO_PKG_VERSION"));
    for file in [easyconfig.as_str(), "packaging/spack/spack_repo/fednmf/packages/fednmf/package.py"] {
        let parse = "import ast, sys; ast.parse(open(sys.argv[1]).read())";
        let parsed = std::process::Command::new("python3").args(["-c", parse, file]).current_dir(root()).output();
        let parsed = parsed.expect("python3");
        assert!(parsed.status.success(), "{file}: {}", String::from_utf8_lossy(&parsed.stderr));
    }
}

/// All packages and the citation have one version.
#[test]
fn packages_have_the_version_of_the_manifest() {
    let version = env!("CARGO_PKG_VERSION");
    let easyconfig = format!("packaging/easybuild/fednmf-{version}-gompi-2025b.eb");
    for (file, line) in [
        ("python/Cargo.toml", format!("version = \"{version}\"")),
        ("CITATION.cff", format!("version: {version}")),
        ("r/DESCRIPTION", format!("Version: {version}")),
        ("packaging/conda/recipe.yaml", format!("  version: \"{version}\"")),
        ("packaging/galaxy/fednmf.xml", format!("        <token name=\"@TOOL_VERSION@\">{version}</token>")),
        ("packaging/nf-core/fednmf/environment.yml", format!("  - conda-forge::fednmf={version}")),
        (easyconfig.as_str(), format!("version = '{version}'")),
    ] {
        assert!(text(&root().join(file)).lines().any(|l| l == line), "{file}: not version {version}");
    }
}
