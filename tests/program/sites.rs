//! Parties on machines of their own: a hub and sites as separate processes on loopback, each with its own certificate and
//! directory.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use ed25519_dalek::SigningKey;

use fednmf_privacy::transcript::{Heading, Transcript, unhex};
use fednmf_sites::{Config, Sites};
#[cfg(feature = "mpi")]
use serde_json::Value;
use tempfile::tempdir;

use crate::common::fednmf;
#[cfg(feature = "mpi")]
use crate::common::matrix;
#[cfg(feature = "mpi")]
use crate::common::sites::NONCE;
use crate::common::sites::{HOUR, NAMES, Stage, certificates, end_of, text};

#[test]
#[cfg(feature = "mpi")]
fn sites_compute_the_bits_of_mpirun() {
    for words in [
        "--algo fnmf --secure-sum -k 4 --max-iters 12",
        "--algo felb-mu --binarize 8 -k 4 --max-iters 12",
        "--algo secure-hals --transpose -k 4 --max-iters 8",
        "--algo syn-ssd-uv --transpose -k 4 --max-iters 8",
        "--algo asyn-sd --transpose -k 3 --max-iters 8",
    ] {
        let mut stage = Stage::new();
        stage.start_hub("");
        stage.start_sites(&format!(
            "{words} --json --output {{site}}/f.h5 --trace {{site}}/t.jsonl --transcript {{site}}/s.jsonl"
        ));
        for summary in stage.all_well() {
            let summary: Value = serde_json::from_str(&summary).unwrap();
            assert_eq!((&summary["ranks"], &summary["parties"]), (&4.into(), &4.into()));
        }
        stage.expect_factors_of(&stage.by_mpi(words), words);
        assert!(!stage.at("journal").exists(), "a run that has ended needs no journal");
        let says = stage.says("b");
        assert!(says.contains("What leaves this site") && says.contains("site b is party 1 of 4"), "{says}");
        for site in NAMES {
            let verified = fednmf(0, "audit verify").arg(stage.at(site).join("s.jsonl")).run();
            assert_eq!(verified.code, Some(0), "{}", verified.stderr);
        }
        assert!(stage.at("d").join("t.jsonl").exists());
    }
}

/// The certificate of its site identifies the owner of a transcript; an owner of another certificate cannot claim it.
#[test]
fn a_transcript_is_of_the_site_whose_certificate_vouches_for_its_key() {
    let mut stage = Stage::new();
    certificates(&stage.at("others"), SystemTime::now() - HOUR, SystemTime::now() + HOUR);
    stage.start_hub("");
    stage.start_sites("--algo fnmf --secure-sum -k 2 --max-iters 2 --transcript {site}/s.jsonl");
    stage.all_well();
    let verify = |file: &Path, ca: &Path| fednmf(0, "audit verify").arg(file).arg("--ca").arg(ca);
    let own = |site: &str| stage.at(site).join("s.jsonl");
    for site in NAMES {
        let verified = verify(&own(site), &stage.keys("ca.pem")).run();
        assert_eq!(verified.code, Some(0), "{}", verified.stderr);
        assert!(verified.stdout.contains(&format!("of site {site}\n")), "{}", verified.stdout);
    }
    let unchecked = fednmf(0, "audit verify").arg(own("a")).run();
    assert!(unchecked.stdout.contains("of site a, it says; --ca checks it"), "{}", unchecked.stdout);
    let refused = |file: &Path, ca: &Path, why: &str| {
        let run = verify(file, ca).run();
        assert!(run.code == Some(1) && run.stderr.contains(why), "{why}: {:?} {}", run.code, run.stderr);
    };
    refused(
        &own("a"),
        &stage.at("others").join("ca.pem"),
        "cannot be attributed to site a: its certificate is not from the CA",
    );

    // Transcripts that a site could make itself, with valid chains of their own.
    let heading = |site: &str| -> Heading { serde_json::from_str(text(&own(site)).lines().next().unwrap()).unwrap() };
    let forge = |signer: &str, heading: &Heading| {
        let secret = unhex(text(&stage.at(signer).join("s.jsonl.key")).trim()).unwrap();
        let path = stage.at("forged.jsonl");
        let file = std::fs::File::create(&path).unwrap();
        let key = SigningKey::from_bytes(&secret.try_into().unwrap());
        Transcript::new(Box::new(file), key, heading).finish(None).unwrap();
        path
    };
    let (a, b) = (heading("a"), heading("b"));
    let (of_a, of_b) = (a.site.clone().unwrap(), b.site.clone().unwrap());
    let claims = |site| Heading { site, ..b.clone() };
    let ca = stage.keys("ca.pem");
    assert_eq!(verify(&forge("b", &b), &ca).run().code, Some(0), "the forger's own claim is no forgery");
    refused(
        &forge("b", &claims(Some(of_a.clone()))),
        &ca,
        "cannot be attributed to site a: its signature does not fit",
    );
    let mut renamed = of_b.clone();
    renamed.site = "a".into();
    refused(
        &forge("b", &claims(Some(renamed.clone()))),
        &ca,
        "cannot be attributed to site a: its certificate is for another site",
    );
    renamed.chain = of_a.chain;
    refused(&forge("b", &claims(Some(renamed))), &ca, "cannot be attributed to site a: its signature does not fit");
    let mut later = of_b.clone();
    later.time += 1;
    refused(&forge("b", &claims(Some(later.clone()))), &ca, "its signature does not fit");
    later.time += 3 * HOUR.as_secs();
    refused(&forge("b", &claims(Some(later))), &ca, "its certificate has expired");
    refused(&forge("b", &claims(None)), &ca, "no certificate vouches for its key");

    let changed = stage.at("changed.jsonl");
    std::fs::write(&changed, text(&own("a")).replacen(&of_a.signature, &of_b.signature, 1)).unwrap();
    let run = verify(&changed, &ca).run();
    assert!(run.code == Some(2) && run.stderr.contains("a line was changed"), "{:?} {}", run.code, run.stderr);
    let missing = verify(&own("a"), &stage.keys("a.key")).run();
    assert!(missing.code == Some(2) && missing.stderr.contains("holds no certificate"), "{}", missing.stderr);
}

/// No site has the matrix of the run, so a report of its trace shows no rows of it.
#[test]
fn a_trace_of_a_site_has_a_report() {
    for words in ["--algo fnmf", "--algo syn-sd --transpose"] {
        let mut stage = Stage::new();
        stage.start_hub("");
        stage.start_sites(&format!("{words} -k 2 --max-iters 2 --trace {{site}}/t.jsonl --output {{site}}/f.h5"));
        stage.all_well();
        let page = stage.at("page.html");
        let made = fednmf(0, "report").arg(stage.at("b").join("t.jsonl")).arg("--output").arg(&page).run();
        assert_eq!(made.code, Some(0), "{words}: {}", made.stderr);
        let page = text(&page);
        assert!(page.contains("its own party") && !page.contains("reconstruction-0"), "{words}: {page}");
        assert!(page.contains("error-over-iterations"), "{words}: {page}");
    }
}

/// The same command again has other starts, so the sums of two runs do not differ by what a site sent that is in one only.
#[test]
#[cfg(feature = "mpi")]
fn two_runs_of_one_command_have_other_starts_and_say_which() {
    let words = "--algo secure-hals --transpose --start public --secure-sum --accept-risk few-values,rare-entries -k 3 --max-iters 3";
    let mut nonces = Vec::new();
    let mut stage = Stage::new();
    for run in ["first", "second"] {
        stage.start_hub("");
        let line = format!("{words} --output {{site}}/f.h5 --trace {{site}}/t.jsonl --transcript {{site}}/{run}.jsonl");
        let start = |site: &&str| stage.join(site, &line).env_remove(NONCE.0).spawn().unwrap();
        stage.sites = NAMES.iter().map(start).collect();
        stage.all_well();
        let transcripts = NAMES.map(|site| text(&stage.at(site).join(format!("{run}.jsonl"))));
        let heading = |text: &String| serde_json::from_str::<Heading>(text.lines().next().unwrap()).unwrap();
        let nonce = heading(&transcripts[0]).nonce.unwrap();
        assert!(transcripts.iter().all(|text| heading(text).nonce.as_ref() == Some(&nonce)));
        let start: Value = serde_json::from_str(text(&stage.at("b").join("t.jsonl")).lines().next().unwrap()).unwrap();
        assert_eq!(start["nonce"], nonce.as_str());
        let output = hdf5::File::open(stage.at("c").join("f.h5")).unwrap();
        let told = output.attr("nonce").unwrap().read_scalar::<hdf5::types::VarLenUnicode>().unwrap();
        assert_eq!(told.as_str(), nonce);
        // The nonce is all that is new: with it, one machine computes the same.
        let mpi = stage.at("mpi.h5");
        let again = fednmf(4, words).env(NONCE.0, &nonce).arg("--input").arg(stage.at("rows-{party}.npy"));
        again.arg("--output").arg(&mpi).ok();
        stage.expect_factors_of(&mpi, run);
        nonces.push((nonce, matrix(&mpi, "U")));
    }
    assert!(nonces[0].0 != nonces[1].0 && nonces[0].1 != nonces[1].1);
}

#[test]
fn consent_is_explicit_and_secrets_are_not_to_be_guessed() {
    let mut stage = Stage::new();
    // Nobody listens: all of it is refused before.
    stage.port = 1;
    for (words, why) in [
        (
            "--algo fnmf --secure-sum --dp gaussian --epsilon 1 --clip 1 --start shared --secret-seed 3",
            "--secret-seed: all keys",
        ),
        ("--algo ppdnmf --insecure-key --key-bits 128", "--insecure-key: a key that short"),
        ("--algo ppdnmf --plain", "--plain: neighbours"),
    ] {
        let told = stage.says("a").len();
        let code = end_of(stage.join("a", &format!("{words} -k 2 --wait 1")).spawn().unwrap(), words).0;
        let says = stage.says("a")[told..].to_string();
        assert!(code == Some(2) && says.contains(why), "{words}: {says}");
    }
    let mut bare = stage.command("join --hub localhost:1 --algo fnmf -k 2", "bare.err");
    for (option, file) in [("--cert", "a.pem"), ("--key", "a.key"), ("--ca", "ca.pem")] {
        bare.arg(option).arg(stage.keys(file));
    }
    assert_eq!(end_of(bare.spawn().unwrap(), "without a policy").0, Some(2));
    let says = text(&stage.at("bare.err"));
    assert!(says.contains("--policy") && says.contains("--no-policy"), "{says}");
}

#[test]
fn a_key_that_others_can_read_is_refused_at_both_ends() {
    use std::os::unix::fs::PermissionsExt;
    let mut stage = Stage::new();
    for file in ["a.key", "hub.key"] {
        std::fs::set_permissions(stage.keys(file), PermissionsExt::from_mode(0o644)).unwrap();
    }
    stage.port = 1;
    assert_eq!(end_of(stage.join("a", "--algo fnmf -k 2 --wait 1").spawn().unwrap(), "a").0, Some(2));
    let mut hub = stage.command("serve --listen 127.0.0.1:0 --sites a,b", "hub.err");
    for (option, file) in [("--cert", "hub.pem"), ("--key", "hub.key"), ("--ca", "ca.pem")] {
        hub.arg(option).arg(stage.keys(file));
    }
    assert_eq!(end_of(hub.spawn().unwrap(), "hub").0, Some(2));
    for says in [stage.says("a"), stage.hub_says()] {
        assert!(says.contains("others can read or replace it (mode 644)") && says.contains("chmod 600"), "{says}");
    }
}

#[test]
fn what_does_not_fit_is_refused_at_both_ends() {
    let mut stage = Stage::new();
    certificates(&stage.at("others"), SystemTime::now() - HOUR, SystemTime::now() + HOUR);
    certificates(&stage.at("old"), SystemTime::now() - 2 * HOUR, SystemTime::now() - HOUR);
    // A CA may have several certificates; this one has made some that have expired.
    let both = text(&stage.keys("ca.pem")) + &text(&stage.at("old").join("ca.pem"));
    std::fs::write(stage.at("both.pem"), both).unwrap();
    stage.start_hub(&format!("--ca {} --keep", stage.at("both.pem").display()));
    let run = "--algo fnmf -k 2 --max-iters 2 -q";
    let pair = |dir: &str, name: &str| {
        let file = |end: &str| stage.at(dir).join(format!("{name}.{end}")).display().to_string();
        format!("--cert {} --key {} {run}", file("pem"), file("key"))
    };
    let other_ca = format!("--ca {} {run}", stage.at("others").join("ca.pem").display());
    for (words, code, at_site, at_hub) in [
        (pair("others", "a"), 2, "not from the hub's CA", "certificate is not from the CA"),
        (pair("old", "a"), 2, "it has expired", "certificate has expired"),
        (other_ca, 2, "the hub's certificate is not from the CA of --ca", "not from the site's CA"),
        (pair("keys", "hub"), 2, "refuses this certificate", "for another purpose"),
        (format!("--site b {run}"), 2, "the certificate of --cert is not for this site", ""),
        (format!("--site x {run}"), 2, "the certificate of --cert is not for this site", ""),
        (format!("--wait 1 {run}"), 1, "sites b, c, d did not join within 1 s", "site a has gone"),
        (run.replace("fnmf", "hals"), 2, "need a method of parties", ""),
        (format!("--key {} {run}", stage.keys("b.key").display()), 2, "does not fit --cert", ""),
        (format!("--ca {} {run}", stage.keys("a.key").display()), 2, "holds no certificate", ""),
    ] {
        let (said, told) = (stage.hub_says().len(), stage.says("a").len());
        let end = end_of(stage.join("a", &words).spawn().unwrap(), &words);
        let says = stage.says("a")[told..].to_string();
        assert_eq!(end.0, Some(code), "{words}: {says}");
        assert!(
            says.contains(at_site) && says.lines().filter(|line| line.starts_with("error: ")).count() == 1,
            "{words}: {says}"
        );
        stage.wait_for(|stage| stage.hub_says()[said..].contains(at_hub));
    }
    // Another version, which no built program has.
    let config = |version: &str| Config {
        hub: format!("localhost:{}", stage.port).parse().unwrap(),
        cert: stage.keys("a.pem"),
        key: stage.keys("a.key"),
        ca: stage.keys("ca.pem"),
        crl: None,
        site: None,
        version: version.into(),
        wait: Duration::from_secs(1),
        reconnect_timeout: Duration::from_secs(1),
        max_untaken: usize::MAX,
        progress: || {},
    };
    // The hub does not rely on what a site checks itself.
    let present = env!("CARGO_PKG_VERSION");
    for (site, why) in
        [("b", "the certificate is not for this site"), ("x", "no site x in this run; its sites are a, b, c, d")]
    {
        let refusal = Sites::join(Config { site: Some(site.into()), ..config(present) }).err().unwrap();
        assert!(refusal.exit_code() == 2 && refusal.message.contains(why), "{refusal}");
    }
    let refusal = Sites::join(config("0.0.1")).err().unwrap();
    assert!(refusal.exit_code() == 2 && refusal.message.contains("this site runs fednmf 0.0.1"), "{refusal}");
    assert!(stage.hub_says().contains("refused a connection") && stage.hub_says().contains("fednmf 0.0.1"));
    // Other options.
    let before = stage.says("a").len();
    stage.sites = NAMES
        .iter()
        .map(|site| stage.join(site, &format!("{run} --seed {}", u8::from(*site == "c"))).spawn().unwrap())
        .collect();
    assert!(stage.finish_sites().iter().all(|(code, _)| *code == Some(2)));
    for site in NAMES {
        let says = stage.says(site);
        assert!(says.contains("the sites differ in --seed: a has 0, c has 1"), "{site}: {says}");
    }
    assert!(!stage.says("a")[before..].contains("was lost"), "one message");
    stage.wait_for(|stage| stage.hub_says().contains("site c has ended with exit code 2"));
}

/// The others learn that a site has an error in its data, and neither the file nor what is in it.
#[test]
fn an_error_in_a_sites_file_is_told_at_the_site_alone() {
    let mut stage = Stage::new();
    stage.start_hub("--keep");
    // Found when the file is opened, and when its entries are read.
    for (text, method, why) in [
        ("no matrix\n1,2\n", "fnmf", "rows.csv: "),
        ("7.5,2,3\n4,-5,6\n1,8,2\n", "fnmf", "negative"),
        ("7.5,2,3\n4,-5,6\n1,8,2\n", "mpc-rows", "negative"),
    ] {
        let told = NAMES.map(|site| stage.says(site).len());
        for site in NAMES {
            let table = if site == "b" { text } else { "7.5,2,3\n4,9,6\n1,8,2\n" };
            std::fs::write(stage.at(site).join("rows.csv"), table).unwrap();
        }
        stage.start_sites(&format!("--algo {method} -k 1 --max-iters 2 --input {{site}}/rows.csv"));
        let ends = stage.finish_sites();
        for (at, site) in NAMES.into_iter().enumerate() {
            let says = &stage.says(site)[told[at]..];
            assert_eq!(ends[at].0, Some(2), "{site}: {says}");
            let words = if site == "b" { why } else { "site b cannot go on, for a reason that it prints itself" };
            assert!(says.contains(words), "{text}: {site}: {says}");
            assert!(site == "b" || !(says.contains("rows.csv") || says.contains("negative")), "{site}: {says}");
        }
        stage.wait_for(|stage| stage.hub_says().trim_end().ends_with("waits for sites a, b, c, d"));
    }
}

/// Long enough to be killed in.
#[cfg(feature = "mpi")]
const LONG: &str = "--algo fnmf --secure-sum -k 4 --max-iters 1500 --eval-every 100";

/// Waits until a site's trace has `count` events.
#[cfg(feature = "mpi")]
fn wait_for_events(stage: &mut Stage, count: usize) {
    stage.wait_for(|stage| text(&stage.at("d").join("t.jsonl")).lines().count() >= count);
}

#[test]
#[cfg(feature = "mpi")]
fn a_site_that_is_killed_ends_the_run_which_can_be_resumed() {
    let mut stage = Stage::new();
    let line = format!(
        "{LONG} -q --patience 20 --output {{site}}/f.h5 --trace {{site}}/t.jsonl --checkpoint {{site}}/c.h5 --checkpoint-every 20 \
         --resume --site-log {{site}}/log.jsonl --transcript {{site}}/sent-"
    );
    stage.start_hub("--patience 1 --keep");
    for killed in [1, 0, 3] {
        let events = text(&stage.at("d").join("t.jsonl")).lines().count();
        stage.start_sites(&format!("{line}{killed}.jsonl"));
        wait_for_events(&mut stage, events + 2);
        std::thread::sleep(Duration::from_millis(50 * killed as u64));
        let start = std::time::Instant::now();
        stage.sites[killed].kill().unwrap();
        let ends = stage.finish_sites();
        assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
        for (at, site) in NAMES.iter().enumerate().filter(|(at, _)| *at != killed) {
            let says = stage.says(site);
            assert_eq!(ends[at].0, Some(1), "{says}");
            let lost = format!("site {} was lost: it had no connection to the hub for 1 s", NAMES[killed]);
            assert!(says.contains(&lost) && says.contains("--resume"), "{says}");
            // Nothing half-written.
            assert!(!stage.at(site).join("f.h5").exists());
            // What the others sent is signed, and their logs say how the run ended.
            let verify = |file: &str| {
                let ca = stage.keys("ca.pem");
                fednmf(0, "audit verify").arg(stage.at(site).join(file)).arg("--ca").arg(ca).run()
            };
            let sent = verify(&format!("sent-{killed}.jsonl"));
            assert!(sent.code == Some(0) && sent.stdout.contains("the run ended with an error"), "{}", sent.stderr);
            let log = verify("log.jsonl");
            assert!(log.code == Some(0) && log.stdout.contains("failed"), "{} {}", log.stdout, log.stderr);
        }
        stage.wait_for(|stage| stage.hub_says().trim_end().ends_with("waits for sites a, b, c, d"));
    }
    stage.start_sites(&format!("{line}last.jsonl"));
    let ends = stage.finish_sites();
    assert!(ends.iter().all(|(code, _)| *code == Some(0)), "{}", stage.says("a"));
    stage.expect_factors_of(&stage.by_mpi(LONG), "resumed");
}

#[test]
#[cfg(feature = "mpi")]
fn a_hub_that_is_killed_and_started_again_goes_on() {
    let mut stage = Stage::new();
    stage.start_hub("");
    stage.start_sites(&format!("{LONG} --output {{site}}/f.h5 --trace {{site}}/t.jsonl"));
    for events in [3, 6] {
        wait_for_events(&mut stage, events);
        stage.hub.as_mut().unwrap().kill().unwrap();
        stage.hub.take().unwrap().wait().unwrap();
        std::thread::sleep(Duration::from_millis(400));
        stage.start_hub("");
        stage.wait_for(|stage| stage.hub_says().rsplit("goes on").next().unwrap().matches("is back").count() == 4);
    }
    stage.all_well();
    let says = stage.says("a");
    assert!(says.contains("lost the connection to the hub") && says.contains("again"), "{says}");
    stage.expect_factors_of(&stage.by_mpi(LONG), "after kills of the hub");
}

/// Hub and sites killed at random moments, FEDNMF_FAULTS times: whatever is lost is resumed, and the end has the same bits.
#[test]
#[cfg(feature = "mpi")]
fn kills_at_random_moments_change_no_bit() {
    let kills: usize = std::env::var("FEDNMF_FAULTS").ok().and_then(|n| n.parse().ok()).unwrap_or(5);
    let mut state = u64::from(std::process::id());
    let mut draw = |below: u64| {
        state = fednmf_linalg::random::mix(state);
        state % below
    };
    let mut stage = Stage::new();
    let line = format!(
        "{LONG} -q --patience 20 --wait 30 --output {{site}}/f.h5 --trace {{site}}/t.jsonl --checkpoint {{site}}/c.h5 \
         --checkpoint-every 20 --resume"
    );
    stage.start_hub("--patience 1 --keep");
    let mut done = 0;
    loop {
        let (told, begins) = (stage.hub_says().len(), "the run begins");
        stage.start_sites(&line);
        stage.wait_for(|stage| stage.hub_says()[told..].contains(begins));
        while done < kills && stage.sites[0].try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(draw(500)));
            done += 1;
            if draw(2) == 0 {
                stage.hub.as_mut().unwrap().kill().unwrap();
                stage.hub.take().unwrap().wait().unwrap();
                std::thread::sleep(Duration::from_millis(draw(500)));
                stage.start_hub("--patience 1 --keep");
            } else {
                let killed = draw(4) as usize;
                stage.sites[killed].kill().unwrap();
                break;
            }
        }
        let codes: Vec<Option<i32>> = stage.finish_sites().into_iter().map(|(code, _)| code).collect();
        // Killed, stopped by the loss of another, or done before the kill.
        assert!(codes.iter().all(|code| [None, Some(0), Some(1)].contains(code)), "{codes:?}: {}", stage.says("a"));
        if done == kills && codes == [Some(0); 4] {
            break;
        }
        if codes == [Some(0); 4] {
            // Again from the start.
            for site in NAMES {
                std::fs::remove_file(stage.at(site).join("c.h5")).unwrap();
            }
        }
    }
    stage.expect_factors_of(&stage.by_mpi(LONG), "after kills");
}

/// Why a site waits is said with --quiet too, and a process without a place in the run ends with it.
#[test]
fn a_process_without_a_place_in_the_run_says_why_it_waits_and_ends_after_the_run() {
    let mut stage = Stage::new();
    stage.start_hub("");
    let run = "--algo fnmf -k 4 --max-iters 1000000 --eval-every 0 -q";
    stage.sites = vec![stage.join("a", run).spawn().unwrap()];
    stage.wait_for(|stage| stage.says("a").contains("note: waiting for sites b, c, d, at most 35"));
    let others: Vec<_> = NAMES[1..].iter().map(|site| stage.join(site, run).spawn().unwrap()).collect();
    stage.sites.extend(others);
    stage.wait_for(|stage| stage.hub_says().contains("the run begins"));
    let told = stage.says("a").len();
    let another = stage.join("a", &format!("{run} --patience 1")).spawn().unwrap();
    stage.wait_for(|stage| stage.says("a")[told..].contains("the run has begun with another process of site a"));
    // It has tried again.
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(stage.hub_says().matches("the run has begun with another process").count(), 1, "{}", stage.hub_says());
    stage.hub.as_mut().unwrap().kill().unwrap();
    stage.hub.take().unwrap().wait().unwrap();
    let start = Instant::now();
    assert_eq!(end_of(another, "another process of site a").0, Some(1));
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    let says = &stage.says("a")[told..];
    assert!(says.contains("the run without this process has ended, and the hub too"), "{says}");
}

#[test]
fn a_site_is_no_hub() {
    let stage = Stage::new();
    let mut command = stage.command("serve --listen 127.0.0.1:0 --sites a,b", "second.err");
    for (option, file) in [("--cert", "a.pem"), ("--key", "a.key"), ("--ca", "ca.pem")] {
        command.arg(option).arg(stage.keys(file));
    }
    assert_eq!(end_of(command.spawn().unwrap(), "a site as hub").0, Some(2));
    assert!(text(&stage.at("second.err")).contains("--cert: is no certificate of a hub"));
}

#[test]
fn sites_give_up_a_hub_that_does_not_come_back() {
    let mut stage = Stage::new();
    stage.start_hub("");
    stage.start_sites("--algo fnmf -k 4 --max-iters 1000000 --eval-every 0 --patience 1 --wait 30");
    // A site that does not know yet that the run has begun waits for a hub for longer.
    stage.wait_for(|stage| NAMES.iter().all(|site| stage.says(site).contains("is party")));
    stage.hub.as_mut().unwrap().kill().unwrap();
    stage.hub.take().unwrap().wait().unwrap();
    let ends = stage.finish_sites();
    for (site, (code, _)) in NAMES.iter().zip(ends) {
        let says = stage.says(site);
        assert!(code == Some(1) && says.contains("there was no connection for 1 s (--patience)"), "{says}");
    }
    // Nor does a run start with a journal of others.
    let listen = format!("serve --listen 127.0.0.1:0 --sites a,b --journal {}", stage.at("journal").display());
    let mut command = stage.command(&listen, "second.err");
    for (option, file) in [("--cert", "hub.pem"), ("--key", "hub.key"), ("--ca", "ca.pem")] {
        command.arg(option).arg(stage.keys(file));
    }
    assert_eq!(end_of(command.spawn().unwrap(), "another hub").0, Some(2));
    assert!(text(&stage.at("second.err")).contains("of a run of sites a,b,c,d"));
}

#[test]
fn a_policy_is_asked_before_anything_leaves() {
    let mut stage = Stage::new();
    stage.start_hub("--keep --patience 2");
    let run = "--algo felb-mu --binarize 8 -k 2 --max-iters 2 -q";
    let masked = "--algo felb-mu --binarize 8 -k 2 --max-iters 2 -q --secure-sum";
    let alone = |stage: &Stage, policy: &str, words: &str| {
        std::fs::write(stage.at("p.json"), policy).unwrap();
        let told = stage.says("a").len();
        let line = format!("{words} --wait 1 --policy {}", stage.at("p.json").display());
        let code = end_of(stage.join("a", &line).spawn().unwrap(), words).0;
        (code, stage.says("a")[told..].to_string())
    };
    for (policy, words, why) in [
        (r#"{"methods": ["fnmf"]}"#, run, "does not allow --algo felb-mu, only fnmf"),
        (r#"{"require": ["secure-sum"]}"#, run, "requires --secure-sum"),
        (r#"{"max_epsilon": 1}"#, run, "--dp is required"),
        (r#"{"methods": ["nosuch"]}"#, run, "nosuch: no such method"),
        (r#"{"minimum": 3}"#, run, "is no policy"),
        (r#"{"in_the_clear": ["agrement"]}"#, run, "'agrement' is no kind of message; did you mean 'agreement'?"),
        (r#"{"masked": ["sums"]}"#, run, "masked: 'sums' is no kind of message; 'fednmf list"),
        (r#"{"sites": ["a", "b"], "min_parties": 3}"#, run, "min_parties: is 3, and 'sites' names only 2"),
        (r#"{"sites": ["b", "c", "d"]}"#, run, "sites: does not name this site, a"),
        (r#"{"in_the_clear": []}"#, run, "in_the_clear: does not allow 'agreement' to leave in the clear"),
        (
            r#"{"in_the_clear": ["agreement", "load headers"]}"#,
            run,
            "does not allow 'statistics of the matrix' to leave in the clear",
        ),
        (r#"{"masked": []}"#, masked, "masked: does not allow 'sum V_i' to leave masked; it leaves each round"),
    ] {
        let (code, says) = alone(&stage, policy, words);
        assert!(
            code == Some(2)
                && says.contains(why)
                && says.lines().filter(|line| line.starts_with("error: ")).count() == 1,
            "{policy}: {says}"
        );
    }
    assert!(!stage.hub_says().contains("joined"), "{}", stage.hub_says());
    // Others that wait for the site, or come just after, end too.
    std::fs::write(stage.at("p.json"), r#"{"methods": ["fnmf"]}"#).unwrap();
    for site in ["b", "c"] {
        // Each hears once of the refusals above.
        assert_eq!(end_of(stage.join(site, run).spawn().unwrap(), site).0, Some(2));
    }
    let early = ["b", "c"].map(|site| stage.join(site, run).spawn().unwrap());
    stage.wait_for(|stage| ["b joined", "c joined"].iter().all(|told| stage.hub_says().contains(told)));
    let refusing = stage.join("a", &format!("{run} --policy {}", stage.at("p.json").display())).spawn().unwrap();
    assert_eq!(end_of(refusing, "a refuses").0, Some(2));
    let late = stage.join("d", run).spawn().unwrap();
    for (site, process) in ["b", "c", "d"].into_iter().zip(early.into_iter().chain([late])) {
        let (code, says) = (end_of(process, site).0, stage.says(site));
        let why = "site a takes no part in the run, for a reason that it prints itself; start again when it can";
        assert!(code == Some(2) && says.contains(why) && !says.contains("only fnmf"), "{site}: {code:?} {says}");
    }
    // Policies that depend on the others: one site refuses, and the others receive a message.
    for (policy, why) in [
        (r#"{"min_parties": 5}"#, "requires at least 5 parties, and this run has 4"),
        (r#"{"sites": ["a", "b", "c"]}"#, "does not name site d"),
    ] {
        std::fs::write(stage.at("p.json"), policy).unwrap();
        let told: Vec<usize> = NAMES.iter().map(|site| stage.says(site).len()).collect();
        let line = |site: &str| {
            if site == "b" { format!("{run} --policy {}", stage.at("p.json").display()) } else { run.into() }
        };
        stage.sites = NAMES.iter().map(|site| stage.join(site, &line(site)).spawn().unwrap()).collect();
        let ends = stage.finish_sites();
        for (at, site) in NAMES.iter().enumerate() {
            let says = &stage.says(site)[told[at]..];
            let (code, words) = if *site == "b" {
                (2, why)
            } else {
                (1, "site b has refused the run (exit code 2), for a reason that it prints itself; the run ends")
            };
            assert!(ends[at].0 == Some(code) && says.contains(words), "{policy}: {site}: {:?} {says}", ends[at].0);
        }
        stage.wait_for(|stage| stage.hub_says().trim_end().ends_with("waits for sites a, b, c, d"));
    }
    // And one that agrees.
    let policy = r#"{"methods": ["felb-mu"], "require": ["secure-sum"], "min_parties": 3, "sites": ["a", "b", "c", "d"],
                     "in_the_clear": ["agreement", "load headers", "factors that are not finite", "summary"]}"#;
    std::fs::write(stage.at("p.json"), policy).unwrap();
    stage.start_sites(&format!("{run} --secure-sum --eval-every 0 --policy {}", stage.at("p.json").display()));
    let ends = stage.finish_sites();
    assert!(ends.iter().all(|(code, _)| *code == Some(0)), "{}", stage.says("b"));
}

/// The data that passed through a proxy: the first lines, and the bytes of each direction.
#[derive(Default)]
struct Passed {
    requests: Vec<String>,
    streams: Vec<Vec<u8>>,
}

/// An HTTP proxy that supports only CONNECT, and requires a login.
fn proxy(passed: Arc<Mutex<Passed>>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let passed = passed.clone();
            std::thread::spawn(move || drop(tunnel(client, &passed)));
        }
    });
    port
}

fn tunnel(mut client: TcpStream, passed: &Arc<Mutex<Passed>>) -> std::io::Result<()> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && client.read(&mut byte)? == 1 {
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    passed.lock().unwrap().requests.push(head.lines().next().unwrap_or_default().to_string());
    if !head.contains("Proxy-Authorization: Basic bWU6c2VjcmV0\r\n") {
        return client.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n");
    }
    let to = head.split_whitespace().nth(1).unwrap_or_default();
    let hub = TcpStream::connect(to)?;
    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
    let copy = |mut from: TcpStream, mut to: TcpStream, place: usize| {
        let passed = passed.clone();
        move || {
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = from.read(&mut buffer) {
                passed.lock().unwrap().streams[place].extend(&buffer[..n]);
                if to.write_all(&buffer[..n]).is_err() {
                    break;
                }
            }
            let _ = to.shutdown(std::net::Shutdown::Write);
        }
    };
    let place = {
        let streams = &mut passed.lock().unwrap().streams;
        streams.extend([Vec::new(), Vec::new()]);
        streams.len() - 2
    };
    let back = std::thread::spawn(copy(hub.try_clone()?, client.try_clone()?, place + 1));
    copy(client, hub, place)();
    let _ = back.join();
    Ok(())
}

#[test]
fn sites_dial_through_a_proxy_which_sees_tls_alone() {
    let mut stage = Stage::new();
    stage.start_hub("");
    let passed = Arc::new(Mutex::new(Passed::default()));
    let port = proxy(passed.clone());
    let run = "--algo fnmf --secure-sum -k 3 --max-iters 3 -q";
    let stranger =
        stage.join("a", &format!("{run} --wait 1")).env("https_proxy", format!("http://127.0.0.1:{port}")).spawn();
    assert_eq!(end_of(stranger.unwrap(), "no login").0, Some(1));
    assert!(stage.says("a").contains("407 Proxy Authentication Required"), "{}", stage.says("a"));
    let url = format!("http://me:secret@127.0.0.1:{port}");
    let sites = NAMES.iter().map(|site| stage.join(site, run).env("HTTPS_PROXY", &url).spawn().unwrap());
    stage.sites = sites.collect();
    stage.all_well();
    let passed = passed.lock().unwrap();
    assert!(passed.requests.iter().all(|line| line.starts_with("CONNECT localhost:")), "{:?}", passed.requests);
    assert_eq!(passed.streams.len(), 8);
    for stream in &passed.streams {
        // Records of a handshake, of its end, and of application data.
        let mut rest = stream.as_slice();
        while let Some((&[kind, 3, 1 | 3, high, low], body)) = rest.split_first_chunk::<5>() {
            assert!([20, 22, 23].contains(&kind), "a record of kind {kind}");
            rest = &body[usize::from(high) << 8 | usize::from(low)..];
        }
        assert!(rest.is_empty(), "{} bytes that are no TLS", rest.len());
        assert!(stream.len() > 1000 && !stream.windows(8).any(|w| w == b"fednmf s" || w == b"hospital"));
    }
}

#[test]
fn a_run_that_stops_early_ends_the_hub_with_the_same_code_and_the_log_says_so() {
    for (option, code, of_hub, outcome) in [
        (
            "--checkpoint {site}/c.h5",
            75,
            "stopped early, with checkpoints",
            r#""outcome":"stopped early, with a checkpoint""#,
        ),
        ("", 1, "was stopped without a checkpoint", r#""outcome":"stopped early""#),
    ] {
        let mut stage = Stage::new();
        stage.start_hub("");
        let line = "--algo fnmf -k 4 --max-iters 1000000 -q --trace {site}/t.jsonl --site-log {site}/log.jsonl";
        stage.start_sites(&format!("{line} {option}"));
        stage.wait_for(|stage| text(&stage.at("b").join("t.jsonl")).lines().count() >= 2);
        let id = stage.sites[3].id().to_string();
        assert!(std::process::Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        let ends = stage.finish_sites();
        assert!(ends.iter().all(|(found, _)| *found == Some(code)), "{}", stage.says("a"));
        let told = ["a", "b", "c", "d"].map(|site| stage.says(site).contains("site d was stopped by SIGTERM"));
        assert_eq!(told, [true, true, true, false], "the others learn whom the signal was for");
        assert_eq!(stage.finish_hub(), Some(code), "{}", stage.hub_says());
        assert!(stage.hub_says().contains(of_hub), "{}", stage.hub_says());
        let log = text(&stage.at("a").join("log.jsonl"));
        assert!(log.contains(outcome), "{log}");
        assert!(!stage.at("journal").exists());
    }
}

#[test]
fn two_sites_of_one_machine_do_not_write_one_file() {
    let mut stage = Stage::new();
    stage.start_hub("");
    std::fs::create_dir(stage.at("shared")).unwrap();
    std::os::unix::fs::symlink(stage.at("shared"), stage.at("link")).unwrap();
    for (option, name, of_b) in [
        ("--output", "f.h5", "shared/f.h5"),
        ("--checkpoint", "c.h5", "link/c.h5"),
        ("--trace", "t.jsonl", "shared/../shared/t.jsonl"),
        ("--report", "r.html", "shared/r.html"),
    ] {
        let run = "--algo felb-mu --binarize 8 -k 2 --max-iters 2 --wait 20";
        let joined = stage.hub_says().matches("site a joined").count() + 1;
        let a =
            stage.join("a", &format!("{run} {option} {}", stage.at("shared").join(name).display())).spawn().unwrap();
        stage.sites.push(a);
        stage.wait_for(|stage| stage.hub_says().matches("site a joined").count() == joined);
        let b = stage.join("b", &format!("{run} {option} {}", stage.at(of_b).display())).spawn().unwrap();
        assert_eq!(end_of(b, option).0, Some(2));
        let says = stage.says("b");
        assert!(says.contains("another run of fednmf is writing this file") && says.contains(option), "{says}");
        assert!(!stage.hub_says().contains("site b joined"));
        let mut a = stage.sites.pop().unwrap();
        a.kill().unwrap();
        a.wait().unwrap();
        stage.wait_for(|stage| stage.hub_says().matches("site a has gone").count() == joined);
    }
    // The locks of a killed site are released.
    let line = "--algo felb-mu --binarize 8 -k 2 --max-iters 2 --output {site}/f.h5";
    let join = |site: &str| match site {
        "a" => stage.join(site, &line.replace("{site}/f.h5", &stage.at("shared").join("f.h5").display().to_string())),
        _ => stage.join(site, line),
    };
    stage.sites = NAMES.iter().map(|site| join(site).spawn().unwrap()).collect();
    stage.all_well();
    let left: Vec<_> = std::fs::read_dir(stage.at("b")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains("lock")), "{left:?}");
}

#[test]
fn what_will_leave_is_printed_before_the_site_connects() {
    let mut stage = Stage::new();
    // Nobody listens here.
    stage.port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let site = stage.join("a", "--algo fnmf --secure-sum -k 2 --wait 1").spawn().unwrap();
    assert_eq!(end_of(site, "no hub").0, Some(1));
    let says = stage.says("a");
    let (table, refused) = (says.find("What leaves this site with --algo fnmf"), says.find("--hub localhost"));
    assert!(table.is_some() && table < refused, "{says}");
    for line in ["sum V_j", "statistics of the matrix", "public keys"] {
        assert!(says.contains(line), "{line}: {says}");
    }
    // Only what this run sends; with --quiet the warning remains that it is in the clear.
    for line in ["load entries", "largest entry", "checkpoint", "digests of names", "without --secure-sum"] {
        assert!(!says.contains(line), "{line}: {says}");
    }
    let site = stage.join("b", "--algo fnmf -k 2 --wait 1 -q").spawn().unwrap();
    assert_eq!(end_of(site, "no hub").0, Some(1));
    let says = stage.says("b");
    assert!(
        says.contains("warning: without --secure-sum this site sends results of its data")
            && says.contains("inside the server"),
        "{says}"
    );
}

#[test]
fn keys_are_for_their_owner_and_never_replaced() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempdir().unwrap();
    let keygen = || fednmf(0, "keygen --sites north,south --hub hub.example.org").arg(dir.path().join("keys"));
    assert_eq!(keygen().run().code, Some(0));
    for (name, mode) in [("north.key", 0o600), ("hub.key", 0o600), ("south.pem", 0o644), ("ca.pem", 0o644)] {
        let found = std::fs::metadata(dir.path().join("keys").join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(found, mode, "{name}");
    }
    assert!(!dir.path().join("keys/ca.key").exists());
    keygen().own_process().refused(&["is not empty", "never replaced"]);
    for wrong in ["--sites North,b", "--sites a,a", "--sites a", "--sites hub,b"] {
        let line = format!("keygen {wrong} --hub localhost");
        fednmf(0, &line).arg(dir.path().join("other")).own_process().refused(&["--sites"]);
    }
}
