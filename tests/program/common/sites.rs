//! A hub and sites as separate processes on loopback, each with its own certificate and directory.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use tempfile::{TempDir, tempdir};

use fednmf_methods::registry;
use fednmf_sites::certificates;

use super::npy;
#[cfg(feature = "mpi")]
use super::{fednmf, matrix};

pub const NAMES: [&str; 4] = ["a", "b", "c", "d"];
/// The nonce of all runs of [`Stage`], so that they have the starts of each other, and of the same run by MPI.
pub const NONCE: (&str, &str) = ("FEDNMF_NONCE", "5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed");
pub const HOUR: Duration = Duration::from_secs(3600);

/// Certificates, data and processes of a run.
pub struct Stage {
    pub dir: TempDir,
    pub hub: Option<Child>,
    pub port: u16,
    pub sites: Vec<Child>,
}

pub fn certificates(dir: &Path, begin: SystemTime, end: SystemTime) {
    let names: Vec<String> = NAMES.iter().map(ToString::to_string).collect();
    certificates::make(dir, &names, &["localhost".into(), "127.0.0.1".into()], begin, end).unwrap();
}

pub fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// The words of a run whose sites accept that their 40 rows are few.
pub fn accepting(words: &str) -> String {
    let method = words.split("--algo ").nth(1).and_then(|rest| registry::find(rest.split(' ').next()?));
    let refuses = method.is_some_and(|method| method.takes("accept-risk")) && !words.contains("--accept-risk");
    format!("{words}{}", if refuses { " --accept-risk few-rows,membership,few-values,rare-entries" } else { "" })
}

impl Stage {
    pub fn new() -> Stage {
        let dir = tempdir().unwrap();
        certificates(&dir.path().join("keys"), SystemTime::now() - HOUR, SystemTime::now() + HOUR);
        for (i, name) in NAMES.iter().enumerate() {
            std::fs::create_dir(dir.path().join(name)).unwrap();
            npy(&dir.path().join(name), "rows.npy", 40 * i..40 * (i + 1));
            npy(dir.path(), &format!("rows-{i}.npy"), 40 * i..40 * (i + 1));
        }
        Stage { dir, hub: None, port: 0, sites: Vec::new() }
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn keys(&self, name: &str) -> PathBuf {
        self.at("keys").join(name)
    }

    pub fn command(&self, words: &str, errors: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fednmf"));
        let log = File::options().create(true).append(true).open(self.at(errors)).unwrap();
        command.args(words.split_whitespace()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        for proxy in ["https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY"] {
            command.env_remove(proxy);
        }
        command
    }

    /// Starts the hub, on the port that it had before.
    pub fn start_hub(&mut self, more: &str) {
        let sites = if more.contains("--sites") { String::new() } else { format!("--sites {}", NAMES.join(",")) };
        let line = format!("serve --listen 127.0.0.1:{} {sites} {more}", self.port);
        let lines = self.hub_says().lines().count();
        let mut command = self.command(&line, "hub.err");
        command.arg("--cert").arg(self.keys("hub.pem")).arg("--key").arg(self.keys("hub.key"));
        if !more.contains("--ca") {
            command.arg("--ca").arg(self.keys("ca.pem"));
        }
        self.hub = Some(command.arg("--journal").arg(self.at("journal")).spawn().unwrap());
        self.wait_for(|stage| {
            let said = stage.hub_says();
            let port =
                said.lines().skip(lines).find_map(|l| l.split("127.0.0.1:").nth(1)?.split(' ').next()?.parse().ok());
            port.map(|port| stage.port = port).is_some()
        });
    }

    pub fn wait_for(&mut self, mut f: impl FnMut(&mut Stage) -> bool) {
        let start = Instant::now();
        while !f(self) {
            let sites = || NAMES.map(|site| self.says(site));
            assert!(start.elapsed() < Duration::from_secs(60), "hub: {}\nsites: {:?}", self.hub_says(), sites());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn hub_says(&self) -> String {
        text(&self.at("hub.err"))
    }

    pub fn says(&self, site: &str) -> String {
        text(&self.at(&format!("{site}.err")))
    }

    /// The command of a site whose 40 rows are few, with {site} in it for its directory.
    pub fn join(&self, site: &str, words: &str) -> Command {
        self.join_within_limits(site, &accepting(words))
    }

    /// The command of a site, which accepts no risk that its words do not name; without `--policy` it agrees to everything.
    pub fn join_within_limits(&self, site: &str, words: &str) -> Command {
        let words = words.replace("{site}", &self.at(site).display().to_string());
        // Those of another command stay together.
        let other = ["prepare ", "programs "].into_iter().filter_map(|name| words.find(name)).min();
        let (words, preparation) = match other {
            Some(at) => words.split_at(at),
            None => (&*words, ""),
        };
        let line = format!("join --hub localhost:{} {words}", self.port);
        let mut command = self.command(&line, &format!("{site}.err"));
        command.env(NONCE.0, NONCE.1);
        if !words.contains("policy") {
            command.arg("--no-policy");
        }
        let input = self.at(site).join("rows.npy");
        for (option, path) in [
            ("--cert", self.keys(&format!("{site}.pem"))),
            ("--key", self.keys(&format!("{site}.key"))),
            ("--ca", self.keys("ca.pem")),
            ("--input", input),
        ] {
            let given = words.contains(&format!("{option} ")) || option == "--input" && !preparation.is_empty();
            if !given {
                command.arg(option).arg(path);
            }
        }
        command.args(preparation.split_whitespace());
        command
    }

    pub fn start_sites(&mut self, words: &str) {
        self.sites = NAMES.iter().map(|site| self.join(site, words).spawn().unwrap()).collect();
    }

    /// Waits for all sites: exit codes and standard outputs.
    pub fn finish_sites(&mut self) -> Vec<(Option<i32>, String)> {
        std::mem::take(&mut self.sites).into_iter().map(|site| end_of(site, &self.hub_says())).collect()
    }

    pub fn finish_hub(&mut self) -> Option<i32> {
        end_of(self.hub.take().unwrap(), "hub").0
    }

    /// Expects that all sites end well, and the hub too.
    pub fn all_well(&mut self) -> Vec<String> {
        let ends = self.finish_sites();
        for (site, (code, _)) in NAMES.iter().zip(&ends) {
            assert_eq!(*code, Some(0), "site {site}: {}\nhub: {}", self.says(site), self.hub_says());
        }
        assert_eq!(self.finish_hub(), Some(0), "{}", self.hub_says());
        ends.into_iter().map(|(_, out)| out).collect()
    }

    /// The same run by MPI, with the output in `mpi/f.h5`.
    #[cfg(feature = "mpi")]
    pub fn by_mpi(&self, words: &str) -> PathBuf {
        let output = self.at("mpi.h5");
        let run = fednmf(4, &accepting(words))
            .env(NONCE.0, NONCE.1)
            .arg("--input")
            .arg(self.at("rows-{party}.npy"))
            .arg("--output")
            .arg(&output);
        run.ok();
        output
    }

    /// Expects each site to have the factors of a run by MPI, to the bit.
    #[cfg(feature = "mpi")]
    pub fn expect_factors_of(&self, output: &Path, what: &str) {
        for (party, site) in NAMES.iter().enumerate() {
            let own = self.at(site).join("f.h5");
            let of_party = |path: &Path| {
                path.with_file_name(format!("{}.party-0{party}.h5", path.file_stem().unwrap().to_string_lossy()))
            };
            let pairs = [(output.to_path_buf(), own.clone()), (of_party(output), of_party(&own))];
            let mut compared = 0;
            for (mpi, site) in pairs {
                let there = |path: &Path, name| hdf5::File::open(path).unwrap().link_exists(name);
                for name in ["U", "V"].into_iter().filter(|name| there(&mpi, name)) {
                    let (a, b) = (matrix(&mpi, name), matrix(&site, name));
                    assert!(
                        a.iter().zip(&b).all(|(a, b)| a.to_bits() == b.to_bits()) && a.dim() == b.dim(),
                        "{what}: {name}"
                    );
                    compared += 1;
                }
            }
            assert_eq!(compared, 2, "{what}: U and V");
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        for child in self.sites.iter_mut().chain(&mut self.hub) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Waits for a process, but not for ever.
pub fn end_of(mut child: Child, what: &str) -> (Option<i32>, String) {
    let start = Instant::now();
    let mut out = String::new();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
            return (status.code(), out);
        }
        if start.elapsed() > Duration::from_secs(90) {
            let _ = child.kill();
            panic!("no end: {what}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
