//! Certificates made for a test, and a client that comes by TLS.

use std::{
    io::{BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rcgen::{BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion,
    crypto::ring,
    pki_types::{PrivateKeyDer, ServerName, pem::PemObject},
    version::{TLS12, TLS13},
};
use tempfile::TempDir;

use crate::kit::Message;

/// An authority of the test's own, and the files that it has issued.
pub(crate) struct Ca {
    issuer: CertifiedIssuer<'static, KeyPair>,
    pub(crate) folder: TempDir,
}

/// A certificate and its key, in files.
pub(crate) struct Issued {
    pub(crate) certificate: Certificate,
    pub(crate) file: PathBuf,
    pub(crate) key: PathBuf,
}

impl Issued {
    /// `[[tls.certificate]]`.
    pub(crate) fn table(&self) -> String {
        format!("[[tls.certificate]]\nfile = {:?}\nkey = {:?}\n", self.file, self.key)
    }
}

impl Ca {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, format!("authority {}", rand::random::<u64>()));
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { issuer, folder }
    }

    /// Its own certificate.
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// One for a server that is its own authority, as `openssl req -x509` makes it.
    pub(crate) fn own_authority(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Issued {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        self.kept(params.self_signed(&key).unwrap(), &key)
    }

    pub(crate) fn issue(&self, names: &[&str]) -> Issued {
        self.issue_with(names, |_| {})
    }

    pub(crate) fn issue_with(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Issued {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        self.kept(params.signed_by(&key, &self.issuer).unwrap(), &key)
    }

    fn kept(&self, certificate: Certificate, key: &KeyPair) -> Issued {
        let at = self.folder.path().join(format!("{:x}", rand::random::<u64>()));
        let issued = Issued { certificate, file: at.with_extension("pem"), key: at.with_extension("key") };
        write(&issued.file, &issued.certificate.pem());
        write(&issued.key, &key.serialize_pem());
        issued
    }

    /// What a client has that trusts it; `versions` are 12 and 13, or one of them.
    pub(crate) fn trusting(&self, versions: &[u8]) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        let versions: Vec<&'static SupportedProtocolVersion> =
            versions.iter().map(|version| if *version == 12 { &TLS12 } else { &TLS13 }).collect();
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_protocol_versions(&versions).unwrap();
        Arc::new(builder.with_root_certificates(roots).with_no_client_auth())
    }

    /// The same that shows a certificate.
    pub(crate) fn showing(&self, issued: &Issued) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        let key = PrivateKeyDer::from_pem_file(&issued.key).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
        Arc::new(builder.with_client_auth_cert(vec![issued.certificate.der().clone()], key).unwrap())
    }

    /// A client of `test.example`.
    pub(crate) fn client(&self, address: SocketAddr) -> TlsClient {
        TlsClient::new(address, &self.trusting(&[12, 13]), "test.example", b"").unwrap()
    }
}

pub(crate) fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
}

/// A connection by TLS.
pub(crate) struct TlsClient(pub(crate) BufReader<StreamOwned<ClientConnection, TcpStream>>);

impl TlsClient {
    /// The handshake, behind `before`, which goes out with its first bytes.
    pub(crate) fn new(
        address: SocketAddr,
        config: &Arc<ClientConfig>,
        name: &str,
        before: &[u8],
    ) -> std::io::Result<Self> {
        let mut tcp = TcpStream::connect(address)?;
        tcp.set_read_timeout(Some(Duration::from_secs(60)))?;
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut tls = ClientConnection::new(config.clone(), name).unwrap();
        let mut first = before.to_vec();
        tls.write_tls(&mut first)?;
        tcp.write_all(&first)?;
        while tls.is_handshaking() {
            tls.complete_io(&mut tcp)?;
        }
        Ok(Self(BufReader::new(StreamOwned::new(tls, tcp))))
    }

    pub(crate) fn tls(&self) -> &ClientConnection {
        &self.0.get_ref().conn
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).unwrap();
    }

    pub(crate) fn ask(&mut self, method: &str, path: &str, fields: &str, body: &[u8]) {
        let len = if body.is_empty() { String::new() } else { format!("content-length: {}\r\n", body.len()) };
        let head = format!("{method} {path} HTTP/1.1\r\nHost: test.example\r\n{len}{fields}\r\n");
        self.write(&[head.as_bytes(), body].concat());
    }

    pub(crate) fn get(&mut self, path: &str) -> Message {
        self.ask("GET", path, "", b"");
        self.read().expect("a response")
    }

    pub(crate) fn read_head(&mut self) -> Option<Message> {
        Message::read_head(&mut self.0)
    }

    /// A response with a length.
    pub(crate) fn read(&mut self) -> Option<Message> {
        let mut message = self.read_head()?;
        message.body = vec![0; message.field("content-length").parse().ok()?];
        self.0.read_exact(&mut message.body).ok()?;
        Some(message)
    }
}
