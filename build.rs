//! Hands the git revision to the program as `FEDNMF_GIT`; `unknown` outside a checkout of its own.

use std::path::Path;
use std::process::Command;

fn git(args: &[&str]) -> Option<String> {
    let out = Command::new("git").args(args).output().ok().filter(|o| o.status.success())?;
    String::from_utf8(out.stdout).ok().map(|s| s.trim().to_string())
}

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Unpacked inside someone else's checkout the revision would be theirs: only the top of a checkout counts.
    let own = git(&["rev-parse", "--show-prefix"]).is_some_and(|prefix| prefix.is_empty());
    let revision = if own { git(&["rev-parse", "--short=12", "HEAD"]) } else { None };
    // The log of HEAD grows with each commit and checkout.
    for name in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", name]).filter(|p| own && Path::new(p).exists()) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    println!("cargo:rustc-env=FEDNMF_GIT={}", revision.as_deref().unwrap_or("unknown"));
}
