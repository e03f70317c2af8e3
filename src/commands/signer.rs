//! The site for which a person signs.

use std::path::PathBuf;

use clap::Args;

use fednmf_base::error::Result;
use fednmf_sites::Identity;

/// A site, with what it signs with.
#[derive(Debug, Args)]
pub struct SignerArgs {
    /// The site's certificate (PEM)
    #[arg(long, value_name = "FILE")]
    cert: PathBuf,
    /// Its private key (PEM), which signs
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// The certificate of the CA of hub and sites (PEM)
    #[arg(long, value_name = "FILE")]
    ca: PathBuf,
    /// The site, if the certificate has several names
    #[arg(long, value_name = "NAME")]
    site: Option<String>,
}

impl SignerArgs {
    /// Reads certificate and key; also returns the name of the site.
    ///
    /// # Errors
    /// If they cannot be read, do not belong together, or are not of the site.
    pub fn read(&self) -> Result<(Identity, String)> {
        let identity = Identity::read(&self.cert, &self.key, &self.ca, None)?;
        let site = identity.site(self.site.as_deref())?;
        Ok((identity, site))
    }
}
