//! A new configuration while the proxy runs: rules, certificates and keys, how TLS is offered, who may go where, and
//! the files of users and of authorities by which origins and clients are trusted. Everything else is taken by a
//! restart, and a configuration in which it has changed is refused as a whole, by the names of its keys: so what runs
//! is always what some file said.
//!
//! What is new is read and checked before anything of it is taken; connections go on with what they have.

use std::fmt::Write as _;

use parking_lot::Mutex;

use crate::{
    certs::Part,
    config::{self, Config, ConfigError, Low, TlsConfig},
    origin_tls::OriginTls,
    ruleset::Rules,
    tls::Tls,
    users::Accounts,
};

/// Where a new configuration comes from.
type Source = Box<dyn Fn() -> Result<Low, ConfigError> + Send + Sync>;

/// The configuration that runs, as it was written, and where it was.
#[derive(Default)]
pub(crate) struct Reload(Mutex<Option<(Low, Source)>>);

/// Why nothing was taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// It cannot be read, or would not do.
    #[error("{0}; nothing was changed")]
    Config(#[from] ConfigError),
    /// Other keys differ.
    #[error("only a restart takes a change of {}; nothing was changed", .0.join(", "))]
    Fixed(Vec<String>),
}

impl Reload {
    /// From now on `source` is asked for what is new; `running` is what it said at the start.
    pub(crate) fn from(&self, running: Low, source: Source) {
        *self.0.lock() = Some((running, source));
    }

    /// Takes what is new; says what was taken. Without a source the files of `config` are read anew.
    pub(crate) fn take(
        &self,
        config: &Config,
        tls: Option<&Tls>,
        (origins, accounts): (&OriginTls, &Accounts),
        rules: &Rules,
    ) -> Result<String, ReloadError> {
        let mut of_file = self.0.lock();
        let new = match &*of_file {
            Some((running, source)) => {
                let new = source()?;
                let fixed = running.fixed_in(&new);
                if !fixed.is_empty() {
                    return Err(ReloadError::Fixed(fixed));
                }
                Some(new)
            }
            None => None,
        };
        let resolved = new.as_ref().map(Low::resolve_tls).transpose()?;
        // All is read before anything is taken.
        let bad = |(key, why)| ConfigError::value(&format!("origin.{key}"), why);
        let trusted = OriginTls::new(&config.origin).map_err(bad)?;
        let access =
            new.as_ref().map_or(&config.forward.access[..], |new| new.forward.access.as_deref().unwrap_or(&[]));
        let users = Accounts::read(config.forward.users.as_deref(), access);
        let users = users.map_err(|(key, why)| ConfigError::value(&key, why))?;
        let ruled = new.as_ref().map(|new| config::rules(&new.rule, &config.cache)).transpose()?;
        let mut taken = certificates(tls, resolved.as_ref().unwrap_or(&config.tls).as_ref())?;
        origins.replace(trusted);
        accounts.replace(users);
        if let Some(ruled) = ruled {
            let _ = match ruled.len() {
                0 => Ok(()),
                1 => write!(taken, "; 1 rule read"),
                n => write!(taken, "; {n} rules read"),
            };
            rules.replace(ruled);
        }
        if let (Some((running, _)), Some(new)) = (&mut *of_file, new) {
            *running = new;
        }
        Ok(taken)
    }
}

fn certificates(tls: Option<&Tls>, new: Option<&TlsConfig>) -> Result<String, ReloadError> {
    let (Some(tls), Some(new)) = (tls, new) else { return Ok("no certificates are configured".into()) };
    let key = |part| if part == Part::ClientCa { "tls.client_ca" } else { "tls.certificate" };
    tls.replace(new).map_err(|bad| ConfigError::value(key(bad.part), bad.why))?;
    Ok(format!("{} certificate{} read", new.certificate.len(), if new.certificate.len() == 1 { "" } else { "s" }))
}
