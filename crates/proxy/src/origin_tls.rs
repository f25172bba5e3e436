//! TLS to origins: their certificates are verified, by the roots of the system or those of a file, and for the name in
//! the URL or another that the operator gives. Where the operator turned that off, every start says so.

use std::{
    collections::HashMap,
    io,
    path::Path,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, SystemTime},
};

use http::{Uri, uri::Authority};
use parking_lot::RwLock;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
    sign::SingleCertAndKey,
};
use tokio::sync::OnceCell;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{
    certs::{self, BadFile, Pair, Part},
    config::LowOrigin,
    reason::OriginFailure,
};

/// How one origin is spoken to.
#[derive(Debug)]
struct Secured {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    /// Our own certificate.
    shown: Option<Pair>,
}

/// A value of `[[origin]]` that will not do: its key, and why.
pub(crate) type BadOrigin = (&'static str, String);

/// All origins that are spoken to by TLS; others, to which redirects lead, are trusted by the system's roots.
#[derive(Debug, Default)]
pub(crate) struct OriginTls {
    configured: RwLock<HashMap<Authority, Arc<Secured>>>,
    of_system: OnceCell<Option<Arc<ClientConfig>>>,
}

impl OriginTls {
    /// Reads what is trusted of them, and says on standard error which are not verified.
    pub(crate) fn new(origins: &[LowOrigin]) -> Result<Self, BadOrigin> {
        Ok(Self { configured: RwLock::new(all(origins)?), of_system: OnceCell::new() })
    }

    /// From now on `new` is what is trusted.
    pub(crate) fn replace(&self, new: Self) {
        *self.configured.write() = new.configured.into_inner();
    }

    /// The handshake, without a limit of its own.
    pub(crate) async fn connect(
        &self,
        to: &Authority,
        tcp: TcpStream,
        may_be_http2: bool,
    ) -> Result<OriginStream, OriginFailure> {
        let configured = self.configured.read().get(to).cloned();
        let (mut config, name) = match configured {
            Some(secured) => (secured.config.clone(), secured.name.clone()),
            None => self.by_system(to).await?,
        };
        if !may_be_http2 && !config.alpn_protocols.is_empty() {
            Arc::make_mut(&mut config).alpn_protocols.clear();
        }
        let connected = TlsConnector::from(config).connect(name, tcp).await;
        connected.map(|stream| OriginStream::Tls(Box::new(stream))).map_err(|e| failure(&e))
    }
}

impl OriginTls {
    /// Whether HTTP/2 is offered to it.
    pub(crate) fn offers_http2(&self, to: &Authority) -> bool {
        self.configured.read().get(to).is_some_and(|secured| !secured.config.alpn_protocols.is_empty())
    }

    async fn by_system(&self, to: &Authority) -> Result<(Arc<ClientConfig>, ServerName<'static>), OriginFailure> {
        let read = || async { tokio::task::spawn_blocking(by_system).await.ok().flatten() };
        let config = self.of_system.get_or_init(read).await.clone().ok_or(OriginFailure::TlsUntrusted)?;
        let name = ServerName::try_from(to.host().trim_matches(['[', ']']).to_owned());
        Ok((config, name.map_err(|_| OriginFailure::TlsName)?))
    }
}

/// What a server is trusted with that the operator says nothing of.
fn by_system() -> Option<Arc<ClientConfig>> {
    let origin = LowOrigin::default();
    let provider = Arc::new(ring::default_provider());
    match verifier(&origin, &provider).and_then(|verifier| client(provider, verifier)) {
        Ok(config) => Some(Arc::new(config)),
        Err((_, why)) => {
            eprintln!("picaflor: redirects are not followed by https: {why}");
            None
        }
    }
}

fn client(provider: Arc<CryptoProvider>, verifier: Arc<dyn ServerCertVerifier>) -> Result<ClientConfig, BadOrigin> {
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|e| ("url", e.to_string()))?.dangerous();
    Ok(builder.with_custom_certificate_verifier(verifier).with_no_client_auth())
}

fn all(origins: &[LowOrigin]) -> Result<HashMap<Authority, Arc<Secured>>, BadOrigin> {
    let mut found = HashMap::new();
    for origin in origins {
        if let Some((authority, secured)) = secured(origin)? {
            if origin.verify == Some(false) {
                let url = &origin.url;
                eprintln!("picaflor: {url} is NOT VERIFIED (origin.verify): anyone in between can pose as it");
            }
            let shown = secured.shown.iter();
            let warnings = shown.filter_map(|pair| pair.warning(SystemTime::now(), "origins"));
            warnings.for_each(|warning| eprintln!("picaflor: {warning}"));
            found.insert(authority, Arc::new(secured));
        }
    }
    Ok(found)
}

/// Refuses what cannot be spoken to.
pub(crate) fn check(origin: &LowOrigin) -> Result<(), BadOrigin> {
    secured(origin).map(drop)
}

/// `None` if it is not spoken to by TLS.
fn secured(origin: &LowOrigin) -> Result<Option<(Authority, Secured)>, BadOrigin> {
    let url: Uri = origin.url.parse().map_err(|e| ("url", format!("`{}`: {e}", origin.url)))?;
    let authority = url.authority().filter(|_| url.scheme_str() == Some("https")).cloned();
    let Some(authority) = authority else {
        let given = [
            ("ca", origin.ca.is_some()),
            ("name", origin.name.is_some()),
            ("verify", origin.verify.is_some()),
            ("certificate", origin.certificate.is_some()),
            ("key", origin.key.is_some()),
            ("http2", origin.http2.is_some()),
        ];
        return match given.iter().find(|(_, is_given)| *is_given) {
            Some((key, _)) => Err((key, format!("`{}` is not https://HOST:PORT", origin.url))),
            None => Ok(None),
        };
    };
    let (key, name) = match &origin.name {
        Some(name) => ("name", name.as_str()),
        None => ("url", authority.host().trim_matches(['[', ']'])),
    };
    let name = ServerName::try_from(name.to_owned())
        .map_err(|_| (key, format!("`{name}` is no name that a certificate can be for; give one with name")))?;
    let provider = Arc::new(ring::default_provider());
    let verifier = verifier(origin, &provider)?;
    let mut config = client(provider, verifier)?;
    let shown = shown(origin)?;
    if let Some(shown) = &shown {
        config.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(shown.key()));
    }
    if origin.http2 == Some(true) {
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    }
    Ok(Some((authority, Secured { config: Arc::new(config), name, shown })))
}

/// What is shown to an origin that asks for a certificate.
fn shown(origin: &LowOrigin) -> Result<Option<Pair>, BadOrigin> {
    let Some(file) = &origin.certificate else {
        return match &origin.key {
            Some(_) => Err(("key", "no certificate is given for it; name its file in origin.certificate".into())),
            None => Ok(None),
        };
    };
    let bad = |bad: BadFile| (if bad.part == Part::Key { "key" } else { "certificate" }, bad.why);
    Pair::read(file, origin.key.as_ref().unwrap_or(file)).map(Some).map_err(bad)
}

fn verifier(origin: &LowOrigin, provider: &Arc<CryptoProvider>) -> Result<Arc<dyn ServerCertVerifier>, BadOrigin> {
    if origin.verify == Some(false) {
        return match &origin.ca {
            Some(_) => Err(("verify", "false, and a ca is given; leave one of them out".into())),
            None => Ok(Arc::new(Anyone(provider.clone()))),
        };
    }
    let (roots, own) = match &origin.ca {
        Some(file) => of_file(file).map_err(|why| ("ca", why))?,
        None => (of_system().map_err(|why| ("url", why))?, Vec::new()),
    };
    let built = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
    let by_authority = built.map_err(|e| ("ca", e.to_string()))?;
    Ok(Arc::new(Trusted { by_authority, own }))
}

/// Takes what an authority has issued, and what is itself in the file of authorities: a certificate for one server that
/// is its own authority, as `openssl req -x509` makes it.
#[derive(Debug)]
struct Trusted {
    by_authority: Arc<WebPkiServerVerifier>,
    own: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for Trusted {
    fn verify_server_cert(
        &self,
        server: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.by_authority.verify_server_cert(server, between, name, ocsp, now) {
            Err(Error::InvalidCertificate(CertificateError::Other(_))) if self.own.iter().any(|own| own == server) => {
                certs::in_time(server, Duration::from_secs(now.as_secs()))?;
                verify_server_name(&ParsedCertificate::try_from(server)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by_authority.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by_authority.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.by_authority.supported_verify_schemes()
    }
}

fn of_file(file: &Path) -> Result<(RootCertStore, Vec<CertificateDer<'static>>), String> {
    Ok((certs::roots(file)?, certs::chain(file)?))
}

/// Some roots of a system are odd: those that can be read count.
fn of_system() -> Result<RootCertStore, String> {
    let (found, mut roots) = (rustls_native_certs::load_native_certs(), RootCertStore::empty());
    let why = found.errors.first().map(|e| format!(": {e}")).unwrap_or_default();
    match roots.add_parsable_certificates(found.certs) {
        (0, _) => Err(format!("the system has no root certificates (Debian: ca-certificates){why}; or give a ca")),
        _ => Ok(roots),
    }
}

/// Whether an origin that spoke TLS to us refuses our certificate, or that we have none.
pub(crate) fn is_refused(error: &io::Error) -> bool {
    let alert = match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(Error::AlertReceived(alert)) => alert,
        _ => return false,
    };
    matches!(
        alert,
        AlertDescription::CertificateRequired
            | AlertDescription::NoCertificate
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
    )
}

fn failure(error: &io::Error) -> OriginFailure {
    if is_refused(error) {
        return OriginFailure::TlsRefused;
    }
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(Error::InvalidCertificate(why)) => match why {
            CertificateError::UnknownIssuer => OriginFailure::TlsUntrusted,
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. } => OriginFailure::TlsExpired,
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                OriginFailure::TlsName
            }
            _ => OriginFailure::TlsCertificate,
        },
        _ => OriginFailure::TlsHandshake,
    }
}

/// Takes any certificate; that the other end has its key is still seen.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// A connection to an origin.
pub(crate) enum OriginStream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl OriginStream {
    /// Whether that was agreed on (ALPN).
    pub(crate) fn is_http2(&self) -> bool {
        matches!(self, Self::Tls(tls) if tls.get_ref().1.alpn_protocol() == Some(b"h2"))
    }
}

impl AsyncRead for OriginStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_read(cx, room),
            Self::Tls(tls) => Pin::new(&mut **tls).poll_read(cx, room),
        }
    }
}

impl AsyncWrite for OriginStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_write(cx, bytes),
            Self::Tls(tls) => Pin::new(&mut **tls).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_write_vectored(cx, slices),
            Self::Tls(tls) => Pin::new(&mut **tls).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            Self::Tls(tls) => Pin::new(&mut **tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Self::Tls(tls) => Pin::new(&mut **tls).poll_shutdown(cx),
        }
    }
}
