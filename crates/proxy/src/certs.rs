//! Certificates and their keys, as PEM files have them, and which of them a client gets.
//!
//! A client says the name that it wants (SNI): the certificate for that name answers it, then one for all names beside
//! it (`*.example`), then the first of the configuration. Of several for one name the first whose kind of key the
//! client takes.

use std::{
    collections::HashMap,
    fs,
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustls::{
    CertificateError, Error, InconsistentKeys, RootCertStore,
    crypto::ring::sign::any_supported_type,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::{ClientHello, ResolvesServerCert},
    sign::{CertifiedKey, SigningKey},
};
use x509_cert::{
    Certificate,
    der::Decode,
    ext::pkix::{SubjectAltName, name::GeneralName},
};

/// Longest file of certificates or keys.
const LONGEST: u64 = 4 << 20;

/// Which of the files is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Certificate,
    Key,
    ClientCa,
}

/// What is wrong with a file, and the mend; the file is named in it.
#[derive(Debug)]
pub(crate) struct BadFile {
    pub(crate) part: Part,
    pub(crate) why: String,
}

/// A chain with its key, the names that it is for, and from when to when.
#[derive(Debug)]
pub(crate) struct Pair {
    file: PathBuf,
    key: Arc<CertifiedKey>,
    pub(crate) names: Vec<String>,
    from: SystemTime,
    pub(crate) until: SystemTime,
}

impl Pair {
    /// Reads both files, which may be one.
    pub(crate) fn read(certificate: &Path, key: &Path) -> Result<Self, BadFile> {
        let of_chain = |why| BadFile { part: Part::Certificate, why };
        let chain = chain(certificate).map_err(of_chain)?;
        let signing = signing_key(key).map_err(|why| BadFile { part: Part::Key, why })?;
        let leaf = Certificate::from_der(&chain[0])
            .map_err(|e| of_chain(format!("{}: not a certificate: {e}", certificate.display())))?;
        let (from, until) = times(&leaf);
        let names = names(&leaf);
        let key = matched(chain, signing, certificate, key)?;
        Ok(Self { file: certificate.to_owned(), key: Arc::new(key), names, from, until })
    }

    /// The chain and what signs with its key.
    pub(crate) fn key(&self) -> Arc<CertifiedKey> {
        self.key.clone()
    }

    /// What the other ends, clients or origins, will refuse although it can be shown to them.
    pub(crate) fn warning(&self, now: SystemTime, others: &str) -> Option<String> {
        let file = self.file.display();
        let soon = now + Duration::from_secs(7 * 86_400);
        let what = if self.until < now {
            format!("expired on {}: {others} refuse it; renew it and reload", httpdate::fmt_http_date(self.until))
        } else if self.from > now {
            format!("not valid before {}: {others} refuse it until then", httpdate::fmt_http_date(self.from))
        } else if self.until < soon {
            format!("expires on {}; renew it and reload", httpdate::fmt_http_date(self.until))
        } else {
            return None;
        };
        Some(format!("{file}: the certificate for {} {what}", self.names.first().map_or("no name", |name| name)))
    }
}

/// A regular file, whole: a pipe would be empty at the next reading, and a device has no end.
fn read(path: &Path) -> Result<Vec<u8>, String> {
    let fail = |e: std::io::Error| {
        let mend = match e.kind() {
            std::io::ErrorKind::NotFound => "; name a file that there is",
            std::io::ErrorKind::PermissionDenied => "; let the user that this runs as read it",
            _ => "",
        };
        format!("{}: {e}{mend}", path.display())
    };
    let meta = fs::metadata(path).map_err(fail)?;
    if !meta.is_file() || meta.len() > LONGEST {
        return Err(format!("{}: not a file in PEM form of at most {} MiB", path.display(), LONGEST >> 20));
    }
    let mut bytes = Vec::new();
    fs::File::open(path).and_then(|file| file.take(LONGEST).read_to_end(&mut bytes)).map_err(fail)?;
    Ok(bytes)
}

/// All certificates of a file: at least one.
pub(crate) fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let (bytes, file) = (read(path)?, path.display());
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        // ASN.1 of a sequence begins so, text does not.
        _ if bytes.first() == Some(&0x30) => {
            Err(format!("{file}: not in PEM form; convert it: openssl x509 -inform der -in {file} -out NEW.pem"))
        }
        Ok(_) => Err(format!("{file}: has no certificate in PEM form (-----BEGIN CERTIFICATE-----)")),
        Err(e) => Err(format!("{file}: not in PEM form: {e}")),
    }
}

/// The authorities of a file.
pub(crate) fn roots(path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in chain(path)? {
        roots.add(certificate).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(roots)
}

fn signing_key(path: &Path) -> Result<Arc<dyn SigningKey>, String> {
    let (bytes, file) = (read(path)?, path.display());
    let key = PrivateKeyDer::from_pem_slice(&bytes).map_err(|e| {
        let holds = |what: &[u8]| bytes.windows(what.len()).any(|found| found == what);
        if holds(b"-----BEGIN ENCRYPTED PRIVATE KEY-----") {
            format!("{file}: the key wants a passphrase; take it off: openssl pkey -in {file} -out NEW.pem")
        } else if bytes.first() == Some(&0x30) {
            format!("{file}: not in PEM form; convert it: openssl pkey -inform der -in {file} -out NEW.pem")
        } else {
            format!("{file}: has no private key in PEM form (-----BEGIN PRIVATE KEY-----): {e}")
        }
    })?;
    any_supported_type(&key).map_err(|_| {
        format!("{file}: a kind of key that is not known here; take RSA, ECDSA P-256 or P-384, or Ed25519")
    })
}

/// Chain and key, if they are of each other.
fn matched(
    chain: Vec<CertificateDer<'static>>,
    signing: Arc<dyn SigningKey>,
    certificate: &Path,
    key: &Path,
) -> Result<CertifiedKey, BadFile> {
    let is_of = |chain: Vec<_>| match CertifiedKey::new(chain, signing.clone()).keys_match() {
        // A key whose public half is not known can sign all the same.
        Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(()),
        matched => matched,
    };
    let Err(why) = is_of(chain.clone()) else { return Ok(CertifiedKey::new(chain, signing)) };
    let (certificate, key) = (certificate.display(), key.display());
    let of_another = chain.iter().skip(1).any(|other| is_of(vec![other.clone()]).is_ok());
    Err(match why {
        Error::InconsistentKeys(_) if of_another => BadFile {
            part: Part::Certificate,
            why: format!("{certificate}: the server's own certificate has to be the first of the file"),
        },
        Error::InconsistentKeys(_) => BadFile {
            part: Part::Key,
            why: format!("{key}: not the key of the certificate in {certificate}; name the key it was made with"),
        },
        why => BadFile {
            part: Part::Certificate,
            why: format!("{certificate}: not a certificate of version 3 that a client would take: {why}"),
        },
    })
}

/// From when to when it counts.
fn times(certificate: &Certificate) -> (SystemTime, SystemTime) {
    let validity = certificate.tbs_certificate.validity;
    let time = |time: x509_cert::time::Time| UNIX_EPOCH + time.to_unix_duration();
    (time(validity.not_before), time(validity.not_after))
}

/// Whether it counts at a time.
pub(crate) fn in_time(certificate: &CertificateDer<'_>, now: Duration) -> Result<(), CertificateError> {
    let certificate = Certificate::from_der(certificate).map_err(|_| CertificateError::BadEncoding)?;
    let (from, until) = times(&certificate);
    match UNIX_EPOCH + now {
        now if now < from => Err(CertificateError::NotValidYet),
        now if now > until => Err(CertificateError::Expired),
        _ => Ok(()),
    }
}

/// The DNS names of a certificate, in lower case.
fn names(certificate: &Certificate) -> Vec<String> {
    let Ok(Some((_, SubjectAltName(names)))) = certificate.tbs_certificate.get::<SubjectAltName>() else {
        return Vec::new();
    };
    let dns = |name: &GeneralName| match name {
        GeneralName::DnsName(name) => Some(name.as_str().to_ascii_lowercase()),
        _ => None,
    };
    names.iter().filter_map(dns).collect()
}

/// All certificates of a server, by name.
#[derive(Debug, Default)]
pub(crate) struct ByName {
    exact: HashMap<String, Vec<Arc<CertifiedKey>>>,
    /// By what stands behind `*.`.
    beside: HashMap<String, Vec<Arc<CertifiedKey>>>,
    default: Vec<Arc<CertifiedKey>>,
}

impl ByName {
    /// The first of them is the one for clients that name none, or one that none is for.
    pub(crate) fn new(pairs: &[Pair]) -> Self {
        let mut all = Self::default();
        for pair in pairs {
            for name in &pair.names {
                let keys = match name.strip_prefix("*.") {
                    Some(parent) => all.beside.entry(parent.to_owned()).or_default(),
                    None => all.exact.entry(name.clone()).or_default(),
                };
                keys.push(pair.key.clone());
            }
        }
        // Beside it those of other kinds for the same names.
        let like_the_first = |pair: &&Pair| pairs.first().is_some_and(|first| first.names == pair.names);
        all.default = pairs.iter().filter(like_the_first).map(|pair| pair.key.clone()).collect();
        all
    }

    fn of(&self, name: Option<&str>) -> &[Arc<CertifiedKey>] {
        let Some(name) = name.map(str::to_ascii_lowercase) else { return &self.default };
        let beside = || self.beside.get(name.split_once('.')?.1);
        self.exact.get(&name).or_else(beside).unwrap_or(&self.default)
    }
}

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let keys = self.of(hello.server_name());
        let fits = |key: &&Arc<CertifiedKey>| key.key.choose_scheme(hello.signature_schemes()).is_some();
        keys.iter().find(fits).or(keys.first()).cloned()
    }
}
