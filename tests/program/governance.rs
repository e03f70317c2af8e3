//! What a site agrees to, and its records: policy, proposals and approvals, profile, log, results that are put aside.

use std::collections::BTreeSet;
use std::path::Path;

use ndarray::Array2;
use serde_json::{Value, json};

use fednmf_methods::description::Partition;
use fednmf_methods::registry;
use fednmf_privacy::transcript::Subject;
use fednmf_sites::{Identity, Signed};

use crate::common::sites::{NAMES, NONCE, Stage, accepting, end_of, text};
use crate::common::{factor, fednmf, matrix};

/// A command with the identity of a site.
fn as_site(stage: &Stage, site: &str, words: &str) -> (Option<i32>, String, String) {
    let mut run = fednmf(0, words);
    for (option, file) in
        [("--cert", format!("{site}.pem")), ("--key", format!("{site}.key")), ("--ca", "ca.pem".into())]
    {
        run = run.arg(option).arg(stage.keys(&file));
    }
    let output = run.run();
    (output.code, output.stdout, output.stderr)
}

/// Proposes a run of `words` by site a, and approves it at all sites; the files are NAME/approved.json.
fn agree(stage: &Stage, words: &str) -> Value {
    let file = stage.at("proposal.json");
    let _ = std::fs::remove_file(&file);
    let own = stage.at("a").display().to_string();
    let words = accepting(words).replace("{site}", &own);
    let (code, _, stderr) =
        as_site(stage, "a", &format!("join --propose {} --input {own}/rows.npy {words}", file.display()));
    assert_eq!(code, Some(0), "{words}: {stderr}");
    for site in NAMES {
        let approval = stage.at(site).join("approved.json");
        let _ = std::fs::remove_file(&approval);
        let line = format!("approve {} --as Ada<ada@{site}.org> -o {}", file.display(), approval.display());
        let (code, _, stderr) = as_site(stage, site, &line);
        assert_eq!(code, Some(0), "{stderr}");
    }
    serde_json::from_str(&text(&file)).unwrap()
}

/// What a site says that refuses to join alone.
fn refused(stage: &Stage, site: &str, words: &str) -> String {
    let told = stage.says(site).len();
    let code = end_of(stage.join(site, &format!("{words} -q --wait 1")).spawn().unwrap(), words).0;
    let says = stage.says(site)[told..].to_string();
    assert!(
        code == Some(2) && says.lines().filter(|line| line.starts_with("error: ")).count() == 1,
        "{words}: {code:?} {says}"
    );
    says
}

const RUN: &str = "--algo fnmf --secure-sum -k 3 --max-iters 3 --eval-every 0";

#[test]
fn a_site_counts_its_own_rows_before_it_connects() {
    let mut stage = Stage::new();
    stage.start_hub("--keep");
    std::fs::write(stage.at("p.json"), r#"{"min_rows": 41, "max_components_per_row": 0.05}"#).unwrap();
    let says = refused(&stage, "a", &format!("{RUN} --policy {}", stage.at("p.json").display()));
    assert!(says.contains("min_rows: requires 41 rows, and this site's data have 40"), "{says}");
    assert!(says.contains("max_components_per_row: allows 0.05") && says.contains("at least 60 rows"), "{says}");
    // Options that are added to those of a service do not replace its policy.
    std::fs::write(stage.at("loose.json"), "{}").unwrap();
    let [policy, loose] = ["p.json", "loose.json"].map(|name| stage.at(name).display().to_string());
    let says = refused(&stage, "a", &format!("{RUN} --policy {policy} --policy {loose}"));
    assert!(says.contains("--policy: is given twice"), "{says}");
    assert!(refused(&stage, "a", &format!("{RUN} --policy {policy} --no-policy")).contains("cannot be given together"));
    assert!(!stage.hub_says().contains("joined"), "{}", stage.hub_says());
}

/// What people at all sites approved is run, and nothing else.
#[test]
fn only_an_approved_run_is_run() {
    let mut stage = Stage::new();
    stage.start_hub("--keep");
    let policy = stage.at("p.json");
    std::fs::write(&policy, r#"{"approval": "required", "require": ["transcript"], "min_rows": 40, "min_parties": 4}"#)
        .unwrap();
    let own = format!("--transcript {{site}}/s.jsonl --policy {}", policy.display());
    let proposal = agree(&stage, &format!("{RUN} {own}"));
    let line = format!("{RUN} {own} --approved {{site}}/approved.json");
    // Not without an approval, not another run, not by another site, not under rules of the proposal that do not hold.
    assert!(refused(&stage, "a", &format!("{RUN} {own}")).contains("approval: requires --approved"));
    let other = refused(&stage, "a", &line.replace("-k 3", "-k 4 --seed 7"));
    assert!(other.contains("-k, --components: approved is 3, given is 4"), "{other}");
    assert!(other.contains("--seed: approved is 0, given is 7"), "{other}");
    let others = format!("{RUN} {own} --approved {}", stage.at("b").join("approved.json").display());
    assert!(refused(&stage, "a", &others).contains("is the approval of site b"));
    let bare = format!("{RUN} --approved {{site}}/approved.json");
    let says = refused(&stage, "a", &bare);
    assert!(says.contains("the approved proposal refuses the run") && says.contains("requires --transcript"), "{says}");
    // Not a proposal that was changed after it was signed.
    let (signed, changed) = (stage.at("a").join("approved.json"), stage.at("changed.json"));
    std::fs::write(&changed, text(&signed).replace("\"k\": 3", "\"k\": 4")).unwrap();
    let forged = format!("{} --approved {}", bare.replace("-k 3", "-k 4"), changed.display());
    assert!(refused(&stage, "a", &forged).contains("is not signed by site a"));

    // Others that came before it would hear that site a has just refused the run.
    let first = stage.join("a", &line).spawn().unwrap();
    stage.wait_for(|stage| stage.hub_says().contains("site a joined"));
    let others = NAMES[1..].iter().map(|site| stage.join(site, &line).spawn().unwrap());
    stage.sites = std::iter::once(first).chain(others).collect();
    let ends = stage.finish_sites();
    assert!(ends.iter().all(|(code, _)| *code == Some(0)), "{}", stage.says("b"));
    let shown = as_site(
        &stage,
        "a",
        &format!("approve {} --as x<y@z> -o {}", stage.at("proposal.json").display(), stage.at("again").display()),
    );
    for line in [
        "All sites get V: k numbers for each column of the matrix. U, with a row for each row of a site, stays there.",
        "  Each site needs at least 20 rows, and what the rules below ask for.",
        "  The other sites will see 9 vectors (sums over rows) in the whole run, or as many as a row has entries if that is fewer.",
        "  Without any one of the sites the others must have at least 90 rows together, or 10 times the number of columns if that is fewer.",
        "All options, not as a command line (given: a file of the site's own; true: the option is given):",
        "Sites in the run: any that the hub names; at least 4.",
        "Each site adds to its own 'fednmf join': --approved F.json, --transcript F.jsonl.",
    ] {
        assert!(shown.1.lines().any(|other| other == line), "{line}: {}", shown.1);
    }
    // Two people can compare what their transcripts are of.
    let verified = fednmf(0, "audit verify").arg(stage.at("b").join("s.jsonl")).run().stdout;
    let signed: Signed = serde_json::from_value(proposal.clone()).unwrap();
    for line in [format!("  proposal  {}", signed.digest()), format!("     nonce  {}", NONCE.1)] {
        assert!(verified.lines().any(|other| other == line), "{line}: {verified}");
    }
    assert!(verified.lines().any(|line| line.starts_with("     begun  20")), "{verified}");
    let heading = |site: &str| -> Value {
        serde_json::from_str(text(&stage.at(site).join("s.jsonl")).lines().next().unwrap()).unwrap()
    };
    for site in NAMES {
        let digest = heading(site)["proposal"].as_str().unwrap().to_string();
        assert!(digest.len() == 64 && shown.1.contains(&digest), "{digest}: {}", shown.1);
        assert_eq!(heading(site)["policy"].as_str().map(str::len), Some(64));
    }
    assert_eq!(proposal["document"]["method"], "fnmf");
}

/// A refusal is signed as an approval is, and says who refused the run, and why.
#[test]
fn a_refusal_is_on_record_and_stops_the_run() {
    let mut stage = Stage::new();
    stage.start_hub("--keep");
    agree(&stage, RUN);
    let refusal = stage.at("refusal.json");
    let decide = |reason: &str| {
        let mut run =
            fednmf(0, "approve --as Ada<ada@a.org>").arg(stage.at("proposal.json")).arg("--refuse").arg(reason);
        for (option, file) in [("--cert", "a.pem"), ("--key", "a.key"), ("--ca", "ca.pem")] {
            run = run.arg(option).arg(stage.keys(file));
        }
        run.arg("-o").arg(&refusal).run()
    };
    let empty = decide(" ");
    assert!(empty.code == Some(2) && empty.stderr.contains("must say why"), "{}", empty.stderr);
    let told = decide("no legal basis");
    assert!(told.code == Some(0) && told.stdout.contains("Ada<ada@a.org> refuses it for site a"), "{}", told.stderr);
    let says = refused(&stage, "a", &format!("{RUN} --approved {}", refusal.display()));
    assert!(says.contains("Ada<ada@a.org> refuses this proposal for site a: no legal basis"), "{says}");
    // It cannot be made an approval.
    std::fs::write(&refusal, text(&refusal).replace(r#""refused": "no legal basis","#, "")).unwrap();
    let says = refused(&stage, "a", &format!("{RUN} --approved {}", refusal.display()));
    assert!(says.contains("is not signed by site a"), "{says}");
}

/// Writes a document that this site signs, whatever it says.
fn sign(stage: &Stage, site: &str, document: Value, subject: Subject, file: &Path) -> Signed {
    let [cert, key] = ["pem", "key"].map(|end| stage.keys(&format!("{site}.{end}")));
    let identity = Identity::read(&cert, &key, &stage.keys("ca.pem"), None).unwrap();
    let signed = Signed::new(document, subject, site, &identity).unwrap();
    std::fs::write(file, json!(signed).to_string()).unwrap();
    signed
}

/// A site can sign any document, so all that follows from the parameters is computed where it is read.
#[test]
fn a_proposal_is_what_follows_from_its_parameters() {
    let mut stage = Stage::new();
    stage.start_hub("--keep");
    let run = "--algo fnmf -k 3 --max-iters 3";
    let honest = agree(&stage, run)["document"].clone();
    let (file, approval) = (stage.at("forged.json"), stage.at("approved.json"));
    type Lie = fn(&mut Value);
    let lies: [(&str, Lie); 6] = [
        ("protection", |it| it["messages"][1]["protection"] = "masked: only the sum of all parties can be read".into()),
        ("reader", |it| it["messages"][1]["read_by"] = "nobody: a share".into()),
        ("message", |it| drop(it["messages"].as_array_mut().unwrap().pop())),
        ("limits", |it| it["limits"]["least"] = 100_000.into()),
        ("budget", |it| {
            it["budget"] = json!({"epsilon": 0.1, "delta": 1e-9, "releases": 1, "protects": "every patient"})
        }),
        ("method", |it| it["method"] = "fed-kl".into()),
    ];
    for (what, lie) in lies {
        let mut document = honest.clone();
        lie(&mut document);
        assert_ne!(document, honest, "{what}");
        let forged = sign(&stage, "a", document, Subject::Proposal, &file);
        let shown = as_site(&stage, "b", &format!("approve {}", file.display()));
        assert!(shown.0 == Some(2) && shown.1.is_empty(), "{what}: {shown:?}");
        assert!(shown.2.contains("follow from its parameters"), "{what}: {}", shown.2);
        // Not even if another program has approved it.
        let approved = json!({"fednmf_approval": 1, "by": "x <y@z>", "time": "now", "proposal": forged});
        sign(&stage, "b", approved, Subject::Approval, &approval);
        let says = refused(&stage, "b", &format!("{run} --approved {}", approval.display()));
        assert!(says.contains("follow from its parameters"), "{what}: {says}");
    }
    // Control characters are escaped, so no line can be forged.
    let mut document = honest;
    for name in ["feature_type", "x\u{1b}[1A\n  --secure-sum true\ny"] {
        document["parameters"][name] = "A\u{1b}[1A\u{1b}[2K\r\n  --secure-sum true\nB".into();
    }
    sign(&stage, "a", document, Subject::Proposal, &file);
    let shown = as_site(&stage, "b", &format!("approve {}", file.display()));
    assert_eq!(shown.0, Some(0), "{}", shown.2);
    assert!(!shown.1.contains(|c: char| c.is_control() && c != '\n'), "{}", shown.1);
    assert!(!shown.1.lines().any(|line| line == "  --secure-sum true"), "{}", shown.1);
    let says = refused(&stage, "a", &format!("{run} --feature-type A\u{1b}[2K"));
    assert!(says.contains("--feature-type") && says.contains("control characters"), "{says}");
}

/// A run of each private method with each of the options that decide how its messages are protected.
fn runs_of_private_methods() -> Vec<String> {
    let mut runs: Vec<String> = [
        "--algo fnmf -k 3 --max-iters 3 --output {site}/f.h5 --checkpoint {site}/c.h5 --scale max",
        "--algo fnmf --secure-sum --secure-threshold 3 -k 3 --max-iters 2",
        "--algo fed-kl --holdout 0.1 -k 3 --max-iters 2",
        "--algo fed-beta --beta 1 -k 3 --max-iters 2",
        "--algo secure-hals --transpose --dp gaussian --epsilon 1 --clip 9 --eval-every 1 -k 3 --max-iters 2",
        "--algo asyn-sd --transpose --clock real -k 3 --max-iters 4 --eval-every 0",
        "--algo felb --binarize 8 --secure-sum -k 3 --max-iters 2 --eval-every 1",
        "--algo felb --binarize 8 --secure-sum --dp gaussian --epsilon 1 -k 3 --max-iters 2 --eval-every 1",
    ]
    .map(String::from)
    .into();
    for method in registry::ALL.iter().filter(|method| method.description().partition.is_private()) {
        let description = method.description();
        // Encryption takes a second for a few numbers.
        let size =
            if description.name == "ppdnmf" { "-k 1 --max-iters 1 --admm-iters 1" } else { "-k 3 --max-iters 3" };
        let mut base = format!("--algo {} {size}", description.name);
        let columns = description.partition == Partition::PartyColumns;
        base += if columns { " --transpose" } else { "" };
        base += if description.is_boolean() || description.name.starts_with("felb") { " --binarize 8" } else { "" };
        base += if description.name == "dsanls-secure" { " --accept-risk sketches" } else { "" };
        // Components of zeros and ones take another noise; what has no bound of its own needs one.
        let noise = if description.is_boolean() { "xor" } else { "gaussian" };
        let clip =
            if description.name.starts_with("felb") || description.name == "secure-hals" { "" } else { " --clip 1" };
        let dp = format!(" --dp {noise} --epsilon 1{}", if description.is_boolean() { "" } else { clip });
        for masks in ["", " --secure-sum"].into_iter().filter(|masks| masks.is_empty() || method.takes("secure-sum")) {
            for noise in ["", &dp].into_iter().filter(|noise| noise.is_empty() || method.takes("dp")) {
                // Each of the three decides by itself.
                let evaluations = if masks.is_empty() == noise.is_empty() { "" } else { " --eval-every 0" };
                runs.push(format!("{base}{masks}{noise}{evaluations}"));
            }
        }
    }
    runs
}

/// The bytes of a size such as `n x 24 B + 8 B for each party`; `None` of one that is not computed.
fn bytes_of(size: &str) -> Option<u64> {
    let term = |term: &str| {
        let (term, parties) = term.strip_suffix(" for each party").map_or((term, 1), |term| (term, NAMES.len() as u64));
        let (bytes, lines) =
            ["m x ", "n x "].iter().find_map(|lines| Some((term.strip_prefix(lines)?, 64))).unwrap_or((term, 1));
        Some(parties * lines * bytes.strip_suffix(" B")?.parse::<u64>().ok()?)
    };
    size.split(" + ").map(term).sum()
}

/// A proposal has the messages of its run with their protections and sizes, and no others.
#[test]
fn a_proposal_has_the_messages_of_its_run() {
    let mut stage = Stage::new();
    stage.start_hub("--keep");
    // What only some data, who has a shared factor, or the end of an iteration decide.
    let depends = [
        "names for the output",
        "output",
        "checkpoint",
        "evaluation: the server's U",
        "the server's last U",
        "norm of the columns that are left",
    ];
    let mut wrong = Vec::new();
    for words in runs_of_private_methods() {
        let proposal = agree(&stage, &words);
        stage.start_sites(&format!("{words} --approved {{site}}/approved.json --transcript {{site}}/s.jsonl"));
        let ends = stage.finish_sites();
        let says = || NAMES.map(|site| stage.says(site));
        assert!(ends.iter().all(|(code, _)| *code == Some(0)), "{words}: {:?}", says());
        let (mut sent, mut sizes) = (BTreeSet::new(), BTreeSet::new());
        for site in NAMES {
            for line in text(&stage.at(site).join("s.jsonl")).lines().skip(1) {
                let line: Value = serde_json::from_str(line).unwrap();
                let field = |name: &str| line[name].as_str().unwrap_or_default().to_string();
                sent.insert(["kind", "payload", "protection"].map(field));
                sizes.insert((field("kind"), field("payload"), line["bytes"].as_u64()));
            }
            for file in ["s.jsonl", "s.jsonl.key", "f.h5", "c.h5"] {
                let _ = std::fs::remove_file(stage.at(site).join(file));
            }
        }
        // The end of a transcript, and settings, which are compared before it begins.
        sent.retain(|[kind, ..]| !kind.is_empty() && kind != "control");
        let messages = proposal["document"]["messages"].as_array().unwrap();
        let field = |message: &Value, name: &str| message[name].as_str().unwrap().to_string();
        let mut proposed: BTreeSet<[String; 3]> = messages
            .iter()
            .map(|message| {
                let protection = field(message, "protection");
                let protection = protection.split([':', ';']).next().unwrap();
                [field(message, "what"), field(message, "payload"), protection.into()]
            })
            .collect();
        for message in messages {
            let refers = ["the same", "as often", "instead of all these"]
                .iter()
                .any(|words| field(message, "when").contains(words));
            assert!(!refers && !field(message, "size").contains("the same"), "{words}: {message}");
            let sum = field(message, "payload") == "Masked";
            assert_eq!(field(message, "read_by").starts_with("all sites: only the sum"), sum, "{words}: {message}");
        }
        // Sizes that the parameters decide are those that were sent. A file has 64 columns; as rows if it is transposed.
        for (kind, payload, size) in &sizes {
            let own = messages.iter().filter(|it| field(it, "what") == *kind && field(it, "payload") == *payload);
            let computed: Option<Vec<u64>> = own.map(|message| bytes_of(&field(message, "size"))).collect();
            let Some(computed) = computed.filter(|computed| payload == "Masked" && !computed.is_empty()) else {
                continue;
            };
            if !size.is_some_and(|size| computed.contains(&size)) {
                wrong.push(format!("{words}: {kind}: {size:?}, not {computed:?}"));
            }
        }
        proposed.retain(|[kind, ..]| kind != "control");
        let missing: Vec<_> = sent.difference(&proposed).collect();
        // With real clocks the server may have merged its own party for all iterations before another one reports.
        let by_clock = |kind: &str| words.contains("--clock real") && kind.contains("the server");
        let depends = |kind: &str| depends.contains(&kind) || by_clock(kind);
        let more: Vec<_> = proposed.difference(&sent).filter(|[kind, ..]| !depends(kind)).collect();
        assert!(missing.is_empty() && more.is_empty(), "{words}: not proposed {missing:?}, not sent {more:?}");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// What a proposal says is in words.
#[test]
fn a_proposal_reads_as_words_and_warns_of_noise() {
    let mut stage = Stage::new();
    stage.start_hub("");
    let policy = stage.at("p.json");
    std::fs::write(&policy, r#"{"min_parties": 3, "min_rows": 12, "require": ["dp"], "accept_risk": []}"#).unwrap();
    let line = |more: &str| {
        let file = stage.at("words.json");
        let _ = std::fs::remove_file(&file);
        let input = stage.at("a").join("rows.npy");
        let line = format!(
            "join --propose {} --policy {} --input {} {more}",
            file.display(),
            policy.display(),
            input.display()
        );
        as_site(&stage, "a", &line)
    };
    let run = "--algo secure-hals --transpose --secure-sum -k 3 --max-iters 2 --dp gaussian --epsilon 1";
    let (code, told, warned) = line(run);
    assert_eq!(code, Some(0), "{warned}");
    for words in [
        "Budget of the run: epsilon 1, delta 0.00001, over 2 releases; it protects one row of your file, replaced by \
         any other.",
        "  sites in a run: at least 3\n  columns of each site's file: at least 12\n  risks that may be accepted: none",
        "required options: --dp",
        "masked and noised",
        "read by all sites: only the sum",
        "m x 24 B + 48 B",
        "With --transpose a row is a column of a site's file",
        "Sites in the run: any that the hub names; at least 3.",
    ] {
        assert!(told.contains(words), "{words}: {told}");
    }
    let table = told.split("What leaves a site:\n").nth(1).and_then(|rest| rest.split("\nBudget").next()).unwrap();
    assert!(table.contains("summary") && table.lines().all(|line| line.chars().count() <= 100), "{table}");
    assert!(!told.contains("statistics of the matrix"), "{told}");
    assert!(
        warned.contains("--dp: the noise on what 3 parties release is") && warned.contains("mostly noise"),
        "{warned}"
    );
    // Names are those of the file, before it is transposed.
    for (words, sent, kept) in
        [(run.to_string(), "columns", "rows"), (run.replace("--transpose ", ""), "rows", "columns")]
    {
        assert_eq!(line(&format!("{words} --output o.h5")).0, Some(0), "{words}");
        let proposal: Value = serde_json::from_str(&text(&stage.at("words.json"))).unwrap();
        let messages = proposal["document"]["messages"].as_array().unwrap();
        let names = messages.iter().find(|message| message["what"] == "names for the output").unwrap();
        let size =
            format!("names of the {sent} of the sites' files, if they have names; names of {kept} stay at their site");
        assert_eq!(
            (&names["size"], &names["when"]),
            (&size.into(), &"once, before the first iteration, with --output".into())
        );
    }
    let (_, _, warned) = line(&run.replace("--epsilon 1", "--epsilon 1000000"));
    assert!(!warned.contains("mostly noise"), "{warned}");
    let (_, _, warned) = line("--algo felb-mu --binarize 8 --secure-sum -k 3 --max-iters 20 --dp gaussian --epsilon 1");
    assert!(warned.contains("mostly noise"), "{warned}");
    // The own file and the own name decide before anybody approves.
    for (rules, why) in [
        (r#"{"min_rows": 300}"#, "min_rows: requires 300 rows, and this site's data have 40"),
        (r#"{"max_components_per_row": 0.05}"#, "max_components_per_row: allows 0.05"),
        (r#"{"sites": ["b", "c"]}"#, "sites: does not name this site, a"),
        (r#"{"masked": []}"#, "masked: does not allow 'sum V_j'"),
        (r#"{"require": ["suppress-rare"]}"#, "require: requires --suppress-rare"),
        (r#"{"min_colluding": 2}"#, "min_colluding: requires a --colluding of at least 2, not 1"),
        (r#"{"protects": ["row"]}"#, "protects: requires --dp, so that epsilon protects one row of your file"),
    ] {
        std::fs::write(&policy, rules).unwrap();
        let (code, _, stderr) = line(RUN);
        assert!(code == Some(2) && stderr.contains(why), "{rules}: {stderr}");
        assert!(!stage.at("words.json").exists());
    }
    std::fs::write(&policy, r#"{"min_rows": 300}"#).unwrap();
    let (code, _, stderr) = line(run);
    let why = "after --transpose: the columns of the file; min_columns counts its rows";
    assert!(code == Some(2) && stderr.contains(why), "{stderr}");
    // Epsilon may be of a person, and not of a variable.
    std::fs::write(&policy, r#"{"protects": ["row", "party"], "require": ["hold-for"], "sites": ["a", "b"]}"#).unwrap();
    let (code, told, stderr) = line(run);
    assert_eq!(code, Some(0), "{stderr}");
    for words in [
        "  epsilon protects: one row of your file, or the whole data of a party\n",
        "Sites in the run: a, b.\nEach site adds to its own 'fednmf join': --site-log F.jsonl, --hold, --hold-for FILE.\n",
    ] {
        assert!(told.contains(words), "{words}: {told}");
    }
    let (code, _, stderr) = line(&run.replace("--transpose ", ""));
    let why = "protects: allows an epsilon that protects one row of your file, or the whole data of a party, not one column of your \
               file; --transpose decides between row and column";
    assert!(code == Some(2) && stderr.contains(why), "{stderr}");
    // Names and weights of persons may not leave.
    std::fs::write(&policy, r#"{"persons": "rows"}"#).unwrap();
    let (code, told, stderr) = line(RUN);
    assert!(code == Some(0) && told.contains("  persons: rows of each site's file; they stay there\n"), "{stderr}");
    for (words, cure) in
        [(format!("{RUN} --transpose"), "leave --transpose out"), (run.replace("--transpose ", ""), "add --transpose")]
    {
        let (code, _, stderr) = line(&words);
        let why =
            format!("persons: are the rows of the file, and all sites would get names and figures of each; {cure}");
        assert!(code == Some(2) && stderr.contains(&why), "{words}: {stderr}");
    }
    // To look at a proposal needs no key.
    std::fs::write(&policy, r#"{"require": ["suppress-rare"], "min_colluding": 2}"#).unwrap();
    assert_eq!(line(&format!("{RUN} --suppress-rare 3 --colluding 2")).0, Some(0));
    let shown = fednmf(0, "approve").arg(stage.at("words.json")).arg("--ca").arg(stage.keys("ca.pem")).run();
    assert!(shown.code == Some(0) && shown.stdout.contains("required options: --suppress-rare"), "{}", shown.stderr);
    let signs = fednmf(0, "approve --as x<y@z> -o no.json")
        .arg(stage.at("words.json"))
        .arg("--ca")
        .arg(stage.keys("ca.pem"))
        .run();
    assert!(signs.code == Some(2) && signs.stderr.contains("--key"), "{}", signs.stderr);
}

#[test]
fn the_clinical_profile_sets_what_protects_and_refuses_what_contradicts() {
    let mut stage = Stage::new();
    stage.start_hub("");
    std::fs::write(stage.at("p.json"), r#"{"require": ["secure-sum", "dp", "budget"], "evaluations": false}"#).unwrap();
    let run = "--algo felb-mu --binarize 8 -k 3 --max-iters 3 --profile clinical";
    let all = format!(
        "{run} --epsilon 5 --budget {{site}}/b.json --budget-limit 10 --policy {}",
        stage.at("p.json").display()
    );
    let says = refused(&stage, "a", run);
    assert!(says.contains("--epsilon"), "{says}");
    let says = refused(&stage, "a", &format!("{run} --epsilon 5 --eval-every 2"));
    for why in ["--eval-every 0, and another number", "requires --budget", "requires --policy"] {
        assert!(says.contains(why), "{why}: {says}");
    }
    assert!(refused(&stage, "a", &format!("{all} --eval-every 5")).contains("sets --eval-every 0"));
    let says = refused(&stage, "a", &format!("{run} --algo asyn-sd --transpose"));
    assert!(says.contains("--profile clinical: --secure-sum"), "{says}");
    stage.start_sites(&all);
    for summary in stage.all_well() {
        let set = "--profile clinical: --secure-sum, --dp gaussian, --eval-every 0, with --epsilon 5, --budget";
        assert!(summary.contains(set), "{summary}");
    }
}

/// A run of four sites by a method with `words`, under the template for data of patients.
fn under_the_template(words: &str) -> Stage {
    let mut stage = Stage::new();
    stage.start_hub("");
    let template = text(&Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/sites/policy-clinical.json"));
    let own = template
        .replace(r#""north", "south", "west""#, r#""a", "b", "c", "d""#)
        // The stage accepts risks in all of its runs.
        .replace(r#""accept_risk": []"#, r#""accept_risk": ["few-rows", "membership", "few-values", "rare-entries"]"#);
    std::fs::write(stage.at("p.json"), own).unwrap();
    let words = format!(
        "--profile clinical {words} -k 3 --max-iters 3 --epsilon 1 --budget {{site}}/b.json --budget-limit 4 --output {{site}}/f.h5 \
         --transcript {{site}}/s.jsonl --policy {}",
        stage.at("p.json").display()
    );
    agree(&stage, &words);
    stage.start_sites(&format!("{words} --approved {{site}}/approved.json --site-log {{site}}/log.jsonl --hold"));
    stage.all_well();
    assert!(NAMES.iter().all(|site| stage.at(site).join("f.h5.held/f.h5").exists()), "{words}");
    stage
}

/// The template for data of patients allows the runs that the guide shows with it.
#[test]
fn a_run_under_the_template_for_data_of_patients() {
    under_the_template("--algo fnmf");
    let stage = under_the_template("--algo felb-mu --binarize 8");
    // The log of a site has what was spent, which an earlier budget file lacks.
    std::fs::write(stage.at("earlier.json"), r#"{"fednmf_budget": 1, "limit": 4, "runs": []}"#).unwrap();
    for (budget, code) in [(stage.at("a").join("b.json"), 0), (stage.at("earlier.json"), 1)] {
        let verify =
            fednmf(0, "audit verify").arg(stage.at("a").join("log.jsonl")).arg("--ca").arg(stage.keys("ca.pem"));
        let told = verify.arg("--budget").arg(budget).run();
        assert_eq!(told.code, Some(code), "{}", told.stderr);
        assert!(code == 0 || told.stderr.contains("an earlier file was put back"), "{}", told.stderr);
    }
}

/// A budget that was put back, with its key, is noticed before anything is sent.
#[test]
fn a_run_with_an_earlier_budget_than_its_log_is_refused() {
    let mut stage = Stage::new();
    let words = "--algo fnmf --secure-sum -k 3 --max-iters 3 --dp gaussian --epsilon 1 --budget {site}/b.json --budget-limit 4 \
                 --site-log {site}/log.jsonl --output {site}/f.h5";
    stage.start_hub("");
    stage.start_sites(words);
    stage.all_well();
    // Budget and log call the run the same.
    let told = fednmf(0, "account --budget").arg(stage.at("a").join("b.json")).run().stdout;
    let log: Value = serde_json::from_str(text(&stage.at("a").join("log.jsonl")).lines().next().unwrap()).unwrap();
    assert!(told.contains(&format!("ended; in the log: {}", log["document"]["run"].as_str().unwrap())), "{told} {log}");
    // What is left is known before anybody approves.
    let propose = |epsilon: &str| {
        let own = stage.at("a").display().to_string();
        let words = words.replace("{site}", &own).replace("--epsilon 1", &format!("--epsilon {epsilon}"));
        let (words, _) = words.split_once(" --site-log").unwrap();
        as_site(&stage, "a", &format!("join --propose {own}/{epsilon}.json --input {own}/rows.npy {words}"))
    };
    let (code, _, stderr) = propose("3.99");
    assert!(code == Some(2) && stderr.contains("b.json: 1 earlier run") && stderr.contains("is left for"), "{stderr}");
    assert_eq!(propose("1").0, Some(0));
    for name in ["b.json", "b.json.key"] {
        std::fs::remove_file(stage.at("a").join(name)).unwrap();
    }
    stage.start_hub("");
    stage.start_sites(words);
    let ends = stage.finish_sites();
    let says = stage.says("a");
    assert!(ends[0].0 == Some(2) && says.contains("an earlier file was put back"), "{ends:?} {says}");
    assert!(ends[1..].iter().all(|(code, _)| *code != Some(0)), "{ends:?}");
}

/// All runs of a site are in its log, and results that are put aside are there until another person releases them.
#[test]
fn a_site_keeps_a_log_and_a_second_person_releases_results() {
    let mut stage = Stage::new();
    stage.start_hub("--keep");
    let words = format!("{RUN} --output {{site}}/f.h5");
    agree(&stage, &words);
    let line = format!("{words} --approved {{site}}/approved.json --site-log {{site}}/log.jsonl --hold");
    stage.start_sites(&line);
    let ends = stage.finish_sites();
    assert!(ends.iter().all(|(code, _)| *code == Some(0)), "{}", stage.says("b"));
    let (log, held) = (stage.at("a").join("log.jsonl"), stage.at("a").join("f.h5.held"));
    assert!(held.join("f.h5").exists() && held.join("f.party-00.h5").exists() && !stage.at("a").join("f.h5").exists());
    let verify = |log: &Path| fednmf(0, "audit verify").arg(log).arg("--ca").arg(stage.keys("ca.pem")).run();
    let told = verify(&log);
    assert_eq!(told.code, Some(0), "{}", told.stderr);
    for word in ["the log of site a: 3 entries", "begin", "fnmf", "Ada<ada@a.org>", "parameters ", "done", "hold"] {
        assert!(told.stdout.contains(word), "{word}: {}", told.stdout);
    }
    let release = |by: &str| {
        let line = format!("audit release {} --as {by} --site-log {}", held.display(), log.display());
        as_site(&stage, "a", &line)
    };
    let (code, _, stderr) = release("Ada-B.<ADA@a.org>");
    assert!(code == Some(2) && stderr.contains("approved the run"), "{stderr}");
    let kept = std::fs::read(held.join("f.h5")).unwrap();
    std::fs::write(held.join("f.h5"), b"others").unwrap();
    let (code, _, stderr) = release("Bob<bob@a.org>");
    assert!(code == Some(2) && stderr.contains("f.h5"), "{stderr}");
    std::fs::write(held.join("f.h5"), kept).unwrap();
    let (code, told, stderr) = release("Bob<bob@a.org>");
    assert_eq!(code, Some(0), "{stderr}");
    let (first, rest) = told.split_once(": ").unwrap();
    assert!(
        first == "released by Bob<bob@a.org>" && rest.contains("/f.h5, ") && rest.contains(" (noted in "),
        "{told}"
    );
    assert!(stage.at("a").join("f.h5").exists() && !held.exists());
    // At another site the second person refuses, and nobody releases the results after that.
    let (held_at_b, log_at_b) = (stage.at("b").join("f.h5.held"), stage.at("b").join("log.jsonl"));
    let line = format!("audit release {} --as Cem<cem@b.org> --site-log {}", held_at_b.display(), log_at_b.display());
    let (code, _, stderr) = as_site(&stage, "b", &format!("{line} --refuse rare-diagnoses"));
    assert_eq!(code, Some(0), "{stderr}");
    for more in ["", " --refuse again"] {
        let (code, _, stderr) = as_site(&stage, "b", &format!("{line}{more}"));
        assert!(
            code == Some(2) && stderr.contains("Cem<cem@b.org> refused") && stderr.contains("rare-diagnoses"),
            "{stderr}"
        );
    }
    // The entry names the run, as that of its begin does.
    let withheld = verify(&log_at_b).stdout;
    let run_of =
        |event: &str| withheld.split(event).nth(1).and_then(|rest| rest.split([':', ' ']).next()).map(String::from);
    assert!(held_at_b.join("f.h5").exists() && withheld.contains(" by Cem"), "{withheld}");
    assert!(run_of("withhold ").is_some() && run_of("withhold ") == run_of("begin "), "{withheld}");
    assert!(verify(&log).stdout.contains("Bob<bob@a.org>"));
    let changed = stage.at("changed.jsonl");
    std::fs::write(&changed, text(&log).replacen("fnmf", "felb", 1)).unwrap();
    let told = verify(&changed);
    assert!(told.code == Some(2) && told.stderr.contains("line 1"), "{}", told.stderr);
}

/// A result that cannot be put aside is lost: it is not written where others read it.
#[test]
fn a_result_that_cannot_be_put_aside_is_written_nowhere_else() {
    let mut stage = Stage::new();
    stage.start_hub("");
    // The name of the file is that of no other test, which may also use the temporary directory.
    let name = format!("held-{}.h5", std::process::id());
    let line = format!(
        "--algo fnmf --secure-sum -k 3 --max-iters 1000000 --time-limit 4 --eval-every 0 --output {{site}}/{name} --checkpoint \
         {{site}}/c.h5 --site-log {{site}}/log.jsonl --hold"
    );
    stage.start_sites(&line);
    stage.wait_for(|stage| NAMES.iter().all(|site| stage.says(site).contains("iteration")));
    for site in NAMES {
        std::fs::remove_dir_all(stage.at(site).join(format!("{name}.held"))).unwrap();
    }
    let ends = stage.finish_sites();
    for (site, (code, _)) in NAMES.iter().zip(&ends) {
        assert!(!matches!(code, Some(0 | 75)), "site {site}: {code:?} {}", stage.says(site));
        assert!(!stage.at(site).join(&name).exists(), "site {site}");
    }
    let elsewhere = [std::env::temp_dir(), std::env::current_dir().unwrap(), stage.at("")];
    assert!(elsewhere.iter().all(|place| !place.join(&name).exists()), "{elsewhere:?}");
}

/// Results for a second person's key cannot be read by whoever ran, and are released with it.
#[test]
fn results_are_encrypted_for_the_person_who_releases_them() {
    let mut stage = Stage::new();
    stage.start_hub("--keep");
    for name in ["bob", "eve"] {
        let made = fednmf(0, "audit key").arg(stage.at(name)).run();
        assert!(made.code == Some(0) && made.stdout.starts_with("age1"), "{}", made.stderr);
        std::fs::write(stage.at(&format!("{name}.pub")), made.stdout).unwrap();
    }
    assert_eq!(fednmf(0, "audit key").arg(stage.at("bob")).run().code, Some(2), "a key is not replaced");
    let words = format!("{RUN} --output {{site}}/f.h5");
    agree(&stage, &words);
    let line = format!(
        "{words} --approved {{site}}/approved.json --site-log {{site}}/log.jsonl --hold --hold-for {}",
        stage.at("bob.pub").display()
    );
    let says = refused(&stage, "a", &format!("{line} --checkpoint {{site}}/c.h5"));
    assert!(says.contains("--hold-for: --checkpoint"), "{says}");
    let says = refused(&stage, "a", &line.replace("bob.pub", "bob"));
    assert!(says.contains("holds a secret key"), "{says}");
    stage.start_sites(&line);
    let ends = stage.finish_sites();
    assert!(ends.iter().all(|(code, _)| *code == Some(0)), "{}", stage.says("b"));

    let (log, held) = (stage.at("a").join("log.jsonl"), stage.at("a").join("f.h5.held"));
    let mut names: Vec<String> =
        std::fs::read_dir(&held).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["f.h5.age", "f.party-00.h5.age"]);
    for name in &names {
        let bytes = std::fs::read(held.join(name)).unwrap();
        assert!(bytes.starts_with(b"age-encryption.org/v1"), "{name}");
        let copy = stage.at("copy.h5");
        std::fs::write(&copy, bytes).unwrap();
        let read = fednmf(0, "audit report").arg(&copy).arg("--input").arg(stage.at("a").join("rows.npy")).run();
        assert!(
            read.code == Some(2) && read.stderr.contains("is encrypted; decrypt it with 'age -d -i KEY' first"),
            "{}",
            read.stderr
        );
    }
    let release = |by: &str, key: &str| {
        let line = format!("audit release {} --as {by} --site-log {} {key}", held.display(), log.display());
        as_site(&stage, "a", &line)
    };
    let key = |name: &str| format!("--identity {}", stage.at(name).display());
    for (by, key, why) in [
        ("Bob<bob@a.org>", String::new(), "give --identity"),
        ("Bob<bob@a.org>", key("eve"), "is encrypted for another key"),
        ("Bob<bob@a.org>", key("bob.pub"), "--identity"),
        ("Ada<ada@a.org>", key("bob"), "approved the run"),
    ] {
        let (code, _, stderr) = release(by, &key);
        assert!(code == Some(2) && stderr.contains(why), "{why}: {stderr}");
        assert_eq!(stderr.lines().filter(|line| line.starts_with("error: ")).count(), 1, "{stderr}");
        assert!(!stage.at("a").join("f.h5").exists() && held.join("f.h5.age").exists());
    }
    let (code, _, stderr) = release("Bob<bob@a.org>", &key("bob"));
    assert_eq!(code, Some(0), "{stderr}");
    assert!(!held.exists());
    let entries: Vec<Value> = text(&log).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let hold = entries.iter().map(|entry| &entry["document"]).find(|entry| entry["event"] == "hold").unwrap();
    assert_eq!(hold["keys"][0], text(&stage.at("bob.pub")).trim());
    for (name, digest) in hold["results"].as_object().unwrap() {
        assert_eq!(fednmf_sites::file_digest(&stage.at("a").join(name)).unwrap(), digest.as_str().unwrap(), "{name}");
    }
    assert_eq!(fednmf(0, "top").arg(stage.at("a").join("f.h5")).run().code, Some(0));
}

#[test]
fn an_egress_report_names_components_of_few_rows() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    crate::common::npy(dir.path(), "own.npy", 0..90);
    crate::common::npy(dir.path(), "others.npy", 90..150);
    fednmf(0, "--algo fnmf --secure-sum --accept-risk membership --parties 3 -k 4 --max-iters 20")
        .arg("--input")
        .arg(file("own.npy"))
        .arg("--output")
        .arg(file("f.h5"))
        .ok();
    let run = fednmf(0, "audit report --threshold 90").arg(file("f.h5")).arg("--input").arg(file("own.npy"));
    let told = run.arg("--others").arg(file("others.npy")).run();
    assert_eq!(told.code, Some(0), "{}", told.stderr);
    let told: Value = serde_json::from_str(&told.stdout).unwrap();
    let entry = |name: &str| &told[format!("{name}_{}", file("f.h5").display())];
    let figures = |attack: &str| &entry(attack)["attack_experiment_logger"]["attack_instance_logger"]["instance_0"];
    assert_eq!(entry("StructuralAttack")["metadata"]["attack_params"]["threshold"], 90);
    let structure = figures("StructuralAttack");
    assert_eq!((&structure["n_rows"], &structure["DoF_risk"]), (&90.into(), &1.into()), "{structure}");
    assert_eq!(structure["components_below_threshold"].as_array().map(Vec::len), Some(4), "{structure}");
    for attack in ["MembershipAttack", "NearestRecordAttack"] {
        let found = figures(attack);
        assert!(found["AUC"].as_f64().is_some_and(|auc| (0.2..=1.0).contains(&auc)), "{found}");
        assert!(found["P_HIGHER_AUC"].as_f64().is_some_and(|chance| (0.0..=1.0).contains(&chance)), "{found}");
        assert_eq!((&found["n_pos_test_examples"], &found["n_neg_test_examples"]), (&90.into(), &60.into()));
    }
    assert_eq!((&entry("target")["model_name"], &entry("target")["secure_sum"]), (&"fnmf".into(), &true.into()));
}

/// The figures of the three attacks in an egress report, and its messages.
fn egress_report(result: &Path, input: &Path, others: Option<&Path>) -> ([Value; 3], String) {
    let mut run = fednmf(0, "audit report").arg(result).arg("--input").arg(input);
    if let Some(others) = others {
        run = run.arg("--others").arg(others);
    }
    let told = run.run();
    assert_eq!(told.code, Some(0), "{}", told.stderr);
    let all: Value = serde_json::from_str(&told.stdout).unwrap();
    let figures = ["StructuralAttack", "MembershipAttack", "NearestRecordAttack"].map(|attack| {
        let entry = &all[format!("{attack}_{}", result.display())];
        entry["attack_experiment_logger"]["attack_instance_logger"]["instance_0"].clone()
    });
    (figures, told.stderr)
}

/// The number of rows, the heaviest first, that together have 90 % of each column.
fn carriers(weights: &Array2<f64>) -> Value {
    let each = weights.columns().into_iter().map(|column| {
        let mut weights = column.to_vec();
        weights.sort_by(|a, b| b.total_cmp(a));
        let (all, mut before) = (weights.iter().sum::<f64>(), 0.0);
        let counts = |weight: &&f64| {
            let counts = **weight > 0.0 && before < 0.9 * all;
            before += **weight;
            counts
        };
        weights.iter().take_while(counts).count()
    });
    each.collect::<Vec<_>>().into()
}

/// The order of the columns, and of rows that all parties have, does not matter where they have names.
#[test]
fn an_egress_report_matches_names() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let entry = |i: usize, j: usize| {
        let drawn = ((i * 31 + j * 17 + 5) * 2_654_435_761 % (1 << 32)) >> 12;
        1 + drawn % if i % 3 == j % 3 { 9 } else { 2 }
    };
    // Column 12 is not in the file of party 0.
    let table = |name: &str, rows: &[usize], columns: &[usize]| {
        let line = |name: String, cells: Vec<String>| format!("{name},{}\n", cells.join(","));
        let mut text = line("name".into(), columns.iter().map(|j| format!("c{j}")).collect());
        for &i in rows {
            text += &line(format!("r{i}"), columns.iter().map(|&j| entry(i, j).to_string()).collect());
        }
        std::fs::write(file(name), text).unwrap();
    };
    let rows = |range: std::ops::Range<usize>| range.collect::<Vec<_>>();
    let (columns, turned): (Vec<usize>, Vec<usize>) = ((0..12).collect(), (0..13).rev().collect());
    table("site-0.csv", &rows(0..40), &columns);
    table("site-1.csv", &rows(40..80), &turned);
    table("ordered.csv", &rows(40..80), &columns);
    table("others.csv", &rows(80..130), &columns);
    table("turned.csv", &rows(80..130), &turned);
    table("few.csv", &rows(80..130), &columns[1..]);
    let run = "--algo fnmf -k 3 --max-iters 20 --parties 2 --common-columns --accept-risk membership,few-rows";
    fednmf(0, run).arg("--input").arg(file("site-{party}.csv")).arg("--output").arg(file("f.h5")).ok();
    let report =
        |result: &str, input: &str, others: &str| egress_report(&file(result), &file(input), Some(&file(others))).0;
    let expected = report("f.party-01.h5", "ordered.csv", "others.csv");
    assert_eq!(expected[0]["rows_per_component"], carriers(&matrix(&file("f.party-01.h5"), "U")));
    for (input, others) in [("site-1.csv", "others.csv"), ("ordered.csv", "turned.csv"), ("site-1.csv", "turned.csv")] {
        assert_eq!(report("f.party-01.h5", input, others), expected, "{input} {others}");
        // The names of the rows say which party it is.
        assert_eq!(report("f.h5", input, others), expected, "{input} {others}");
    }
    let refused = |result: &str, input: &str, others: &str, words: &[&str]| {
        let run = fednmf(0, "audit report").arg(file(result)).arg("--input").arg(file(input));
        run.arg("--others").arg(file(others)).own_process().refused(words);
    };
    refused(
        "f.party-01.h5",
        "site-0.csv",
        "others.csv",
        &["--input", "row 0 is r0 in the matrix, but r40 in the factors"],
    );
    refused("f.party-01.h5", "site-1.csv", "few.csv", &["--others", "lacks one of them"]);

    // One party.
    fednmf(0, "-k 3 --max-iters 20").arg("--input").arg(file("ordered.csv")).arg("--output").arg(file("o.h5")).ok();
    table("reversed.csv", &rows(40..80), &turned[1..]);
    let expected = report("o.h5", "ordered.csv", "others.csv");
    assert_eq!(report("o.h5", "reversed.csv", "turned.csv"), expected);
    let (_, says) = egress_report(&file("o.h5"), &file("ordered.csv"), Some(&file("turned.csv")));
    assert!(says.contains("1 of its columns are not in the factors, and are ignored"), "{says}");
    refused("o.h5", "site-1.csv", "others.csv", &["--input", "does not fit"]);
    refused("o.h5", "ordered.csv", "few.csv", &["--others", "lacks 1 of the 12 columns of V"]);
    let unnamed = Array2::from_shape_fn((50, 12), |(i, j)| entry(80 + i, j) as f64);
    crate::common::save_npy(&file("others.npy"), &unnamed);
    let (found, says) = egress_report(&file("o.h5"), &file("ordered.csv"), Some(&file("others.npy")));
    assert_eq!(found, expected);
    assert!(says.contains("columns are matched by position"), "{says}");

    // Parties with columns.
    let run = fednmf(0, "--algo syn-sd --parties 2 -k 3 --max-iters 10").arg("--input").arg(file("ordered.csv"));
    run.arg("--output").arg(file("c.h5")).ok();
    table("rows.csv", &(40..80).rev().collect::<Vec<_>>(), &columns);
    let expected = report("c.h5", "ordered.csv", "ordered.csv");
    assert_eq!(expected[0]["rows_per_component"], carriers(&factor(&file("c.h5"), "V")));
    for (input, others) in [("rows.csv", "ordered.csv"), ("ordered.csv", "rows.csv")] {
        assert_eq!(report("c.h5", input, others), expected, "{input} {others}");
    }
    refused("c.h5", "ordered.csv", "others.csv", &["--others", "row 0 is r80 in the matrix, but r40 in the factors"]);
}

/// The rows behind a component are those of the run's own U; where a file lacks it, those of a projection.
#[test]
fn an_egress_report_counts_rows_by_the_weights_of_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let own = crate::common::npy(dir.path(), "own.npy", 0..90);
    let run = |line: &str| {
        fednmf(0, &format!("{line} -k 4 --max-iters 20"))
            .arg("--input")
            .arg(&own)
            .arg("--output")
            .arg(file("f.h5"))
            .ok();
    };
    let report = || egress_report(&file("f.h5"), &own, None);
    for line in [
        "--loss kl",
        "--alpha-u 0.5 --l1-ratio 1",
        "--algo asso --parties 1 --binarize 8",
        "--algo felb --parties 3 --binarize 8",
    ] {
        run(line);
        let ([structure, ..], says) = report();
        assert_eq!(structure["rows_per_component"], carriers(&factor(&file("f.h5"), "U")), "{line}");
        assert!(!says.contains("has no weights"), "{line}: {says}");
    }
    // Boolean factors cannot be projected on.
    let remove_parts = || (0..3).for_each(|party| std::fs::remove_file(file(&format!("f.party-0{party}.h5"))).unwrap());
    remove_parts();
    let without = fednmf(0, "audit report").arg(file("f.h5")).arg("--input").arg(&own).own_process();
    without.refused(&["--input", "has no weights of these data", "give the file of this party"]);
    for line in ["--algo fed-kl --parties 3", "--algo fnmf --parties 3 --normalize none --alpha-u 0.5 --l1-ratio 1"] {
        run(line);
        let ([structure, ..], _) = report();
        assert_eq!(structure["rows_per_component"], carriers(&factor(&file("f.h5"), "U")), "{line}");
        remove_parts();
        let project = fednmf(0, "project").arg(file("f.h5")).arg("--input").arg(&own);
        let done = project.arg("--output").arg(file("p.h5")).run();
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        let ([structure, ..], says) = report();
        assert_eq!(structure["rows_per_component"], carriers(&matrix(&file("p.h5"), "U")), "{line}");
        assert!(says.contains("has no weights of the data of --input"), "{line}: {says}");
    }
}
