//! A new configuration while the proxy runs: rules, certificates and keys, how TLS is offered, who may go where, the
//! files of users and of authorities by which origins and clients are trusted, and a larger store. Everything else is
//! taken by a restart, and a configuration in which it has changed is refused as a whole, by the names of its keys: so
//! what runs is always what some file said.
//!
//! What is new is read and checked, and the store has grown, before anything of it is taken; connections go on with
//! what they have.

use std::{fmt::Write as _, io};

use parking_lot::Mutex;
use picaflor::{Error, Store};

use crate::{
    certs::{BadFile, Part},
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
        store: &Store,
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
        let new_tls = resolved.as_ref().unwrap_or(&config.tls).as_ref();
        let capacity = new.as_ref().and_then(|new| new.store.capacity);
        let grows = of_file.as_ref().is_some_and(|(running, _)| running.store.capacity != capacity);
        let larger = capacity.filter(|_| grows);
        if let Some(capacity) = larger {
            check(tls, new_tls)?;
            store.grow(capacity.0).map_err(|why| ConfigError::value("store.capacity", not_grown(why)))?;
        }
        let mut taken = certificates(tls, new_tls)?;
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
        if let Some(capacity) = larger {
            let _ = write!(taken, "; the store has {capacity}");
        }
        if let (Some((running, _)), Some(new)) = (&mut *of_file, new) {
            *running = new;
        }
        Ok(taken)
    }
}

/// Whether certificates would do.
fn check(tls: Option<&Tls>, new: Option<&TlsConfig>) -> Result<(), ReloadError> {
    let read = tls.and(new).map(Tls::new).transpose().map(drop);
    Ok(read.map_err(unfit)?)
}

fn not_grown(why: Error) -> String {
    match why {
        Error::Option { why, .. } => why,
        Error::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => format!("{source}; give less"),
        why => why.to_string(),
    }
}

fn unfit(bad: BadFile) -> ConfigError {
    let key = if bad.part == Part::ClientCa { "tls.client_ca" } else { "tls.certificate" };
    ConfigError::value(key, bad.why)
}

fn certificates(tls: Option<&Tls>, new: Option<&TlsConfig>) -> Result<String, ReloadError> {
    let (Some(tls), Some(new)) = (tls, new) else { return Ok("no certificates are configured".into()) };
    tls.replace(new).map_err(unfit)?;
    Ok(format!("{} certificate{} read", new.certificate.len(), if new.certificate.len() == 1 { "" } else { "s" }))
}
