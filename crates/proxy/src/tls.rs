//! TLS to clients: what is offered to them, the handshake, and new certificates while the proxy runs.
//!
//! Connections keep what they were begun with; those that come after [`Tls::replace`] get what is new. Tickets outlive
//! it, so that clients resume their sessions; not where clients have to show certificates, for a ticket is not judged
//! by authorities again.

use std::{
    io,
    path::Path,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use parking_lot::RwLock;
use quinn::crypto::rustls::QuicServerConfig;
use rustls::{
    Error, ServerConfig, SupportedProtocolVersion,
    crypto::ring,
    server::{ProducesTickets, WebPkiClientVerifier, danger::ClientCertVerifier},
    version::{TLS12, TLS13},
};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::{
    certs::{self, BadFile, ByName, Pair, Part},
    config::{TlsConfig, TlsVersion},
    reason::TlsFailure,
    stream::Socket,
};

/// The first byte of a handshake's first record.
const HANDSHAKE: u8 = 22;

/// What a client is told that speaks HTTP where TLS is spoken.
const NOT_TLS: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\n\
    cache-status: picaflor; detail=not-tls\r\ncontent-length: 67\r\nconnection: close\r\n\r\n\
    picaflor: not-tls: this address takes TLS only; ask it by https://\n";

/// What new connections begin with.
pub(crate) struct Tls {
    current: RwLock<Current>,
    tickets: Arc<dyn ProducesTickets>,
}

struct Current {
    offered: Arc<ServerConfig>,
    /// By QUIC, if HTTP/3 is spoken: TLS 1.3.
    by_quic: Option<Arc<QuicServerConfig>>,
    /// When the first certificate expires, in seconds since 1970.
    expires: u64,
}

impl Tls {
    /// Reads the certificates and says on standard error what is wrong with their times.
    pub(crate) fn new(config: &TlsConfig) -> Result<Self, BadFile> {
        let tickets = ring::Ticketer::new().map_err(refused)?;
        let current = RwLock::new(offer(config, &tickets)?);
        Ok(Self { current, tickets })
    }

    /// The same anew; where that fails, what was offered stays.
    pub(crate) fn replace(&self, config: &TlsConfig) -> Result<(), BadFile> {
        let fresh = config.client_ca.as_ref().map(|_| ring::Ticketer::new()).transpose().map_err(refused)?;
        let new = offer(config, fresh.as_ref().unwrap_or(&self.tickets))?;
        *self.current.write() = new;
        Ok(())
    }

    /// When the first certificate expires, in seconds since 1970.
    pub(crate) fn expires(&self) -> u64 {
        self.current.read().expires
    }

    /// What is offered by QUIC, if HTTP/3 is spoken.
    pub(crate) fn by_quic(&self) -> Option<Arc<QuicServerConfig>> {
        self.current.read().by_quic.clone()
    }

    /// The handshake, without a limit of its own.
    pub(crate) async fn accept(&self, tcp: TcpStream) -> Result<Box<TlsStream<Socket>>, TlsFailure> {
        let mut first = [0];
        if tcp.peek(&mut first).await.map_err(|_| TlsFailure::Closed)? == 0 {
            return Err(TlsFailure::Closed);
        }
        if first[0] != HANDSHAKE {
            let is_http = first[0].is_ascii_alphabetic() && tcp.try_write(NOT_TLS).is_ok();
            if is_http {
                // Bytes that are not read would take the answer from the client.
                let _ = tcp.try_read(&mut [0; 4096]);
            }
            return Err(TlsFailure::NotTls);
        }
        let offered = self.current.read().offered.clone();
        match TlsAcceptor::from(offered).accept(Socket::new(tcp)).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(e) => Err(failure(&e)),
        }
    }
}

fn refused(why: Error) -> BadFile {
    BadFile { part: Part::Certificate, why: why.to_string() }
}

fn offer(config: &TlsConfig, tickets: &Arc<dyn ProducesTickets>) -> Result<Current, BadFile> {
    let pairs: Vec<_> =
        config.certificate.iter().map(|pair| Pair::read(&pair.file, &pair.key)).collect::<Result<_, _>>()?;
    let now = SystemTime::now();
    pairs.iter().filter_map(|pair| pair.warning(now, "clients")).for_each(|warning| eprintln!("picaflor: {warning}"));
    let versions: &[_] = match config.min_version {
        TlsVersion::V1_2 => &[&TLS13, &TLS12],
        TlsVersion::V1_3 => &[&TLS13],
    };
    let verifier = config.client_ca.as_deref().map(of_clients).transpose()?;
    let by_name = Arc::new(ByName::new(&pairs));
    let with = |versions: &[&'static SupportedProtocolVersion], protocols: &[&[u8]]| {
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_protocol_versions(versions).map_err(refused)?;
        let builder = match &verifier {
            Some(verifier) => builder.with_client_cert_verifier(verifier.clone()),
            None => builder.with_no_client_auth(),
        };
        let mut offered = builder.with_cert_resolver(by_name.clone());
        offered.ticketer = tickets.clone();
        offered.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Ok::<_, BadFile>(offered)
    };
    let protocols: &[&[u8]] = if config.http2 { &[b"h2", b"http/1.1"] } else { &[b"http/1.1"] };
    let offered = with(versions, protocols)?;
    let by_quic = config.http3.then(|| {
        let offered = QuicServerConfig::try_from(with(&[&TLS13], &[b"h3"])?);
        offered.map(Arc::new).map_err(|why| BadFile { part: Part::Certificate, why: why.to_string() })
    });
    let by_quic = by_quic.transpose()?;
    let until = pairs.iter().map(|pair| pair.until).min().unwrap_or(UNIX_EPOCH);
    let expires = until.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    Ok(Current { offered: Arc::new(offered), by_quic, expires })
}

/// Takes the certificates of clients that an authority of the file has issued.
fn of_clients(file: &Path) -> Result<Arc<dyn ClientCertVerifier>, BadFile> {
    let bad = |why| BadFile { part: Part::ClientCa, why };
    let roots = Arc::new(certs::roots(file).map_err(bad)?);
    let builder = WebPkiClientVerifier::builder_with_provider(roots, Arc::new(ring::default_provider()));
    builder.build().map_err(|e| bad(format!("{}: {e}", file.display())))
}

fn failure(error: &io::Error) -> TlsFailure {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(Error::PeerIncompatible(_)) => TlsFailure::NothingInCommon,
        Some(Error::NoApplicationProtocol) => TlsFailure::NoProtocol,
        Some(Error::AlertReceived(_)) => TlsFailure::Refused,
        Some(Error::NoCertificatesPresented | Error::InvalidCertificate(_)) => TlsFailure::ClientCertificate,
        Some(_) => TlsFailure::Protocol,
        None => TlsFailure::Closed,
    }
}
