//! Who a party is: a certificate, its key, and whom it believes.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{CipherSuite, ClientConfig, RootCertStore, ServerConfig, version};
use zeroize::Zeroizing;

use crate::error::{Error, Result};

/// What both sides must speak above TLS: on the first connection of a link, and on the others.
pub(super) const PROTOCOL: &[u8] = b"gatework-fss/3";
pub(super) const LANE_PROTOCOL: &[u8] = b"gatework-fss/3 lane";

pub(super) fn tls(error: impl std::fmt::Display) -> Error {
    Error::Tls { what: error.to_string() }
}

/// A certificate with its key, and the authority that signs the other side's.
pub struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    authority: Arc<RootCertStore>,
}

impl Identity {
    /// Reads PEM files.
    pub fn load(certificate: &Path, key: &Path, authority: &Path) -> Result<Self> {
        let read = |path: &Path| match fs::read(path) {
            Ok(bytes) => Ok(Zeroizing::new(bytes)),
            Err(error) => Err(refused(path, error)),
        };
        Self::from_pem((certificate, &read(certificate)?), (key, &read(key)?), (authority, &read(authority)?))
    }

    /// The same from what is in the files, whose names errors have.
    pub(crate) fn from_pem(
        certificate: (&Path, &[u8]),
        key: (&Path, &[u8]),
        authority: (&Path, &[u8]),
    ) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        for root in certificates(authority)? {
            roots.add(root).map_err(|error| refused(authority.0, error))?;
        }
        Ok(Self {
            chain: certificates(certificate)?,
            key: PrivateKeyDer::from_pem_slice(key.1).map_err(|error| refused(key.0, error))?,
            authority: Arc::new(roots),
        })
    }

    /// AES-128 first, as everywhere else: it is quicker than AES-256, and no bit of security is above 128
    /// here.
    fn provider() -> Arc<CryptoProvider> {
        let mut provider = ring::default_provider();
        provider.cipher_suites.sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
        Arc::new(provider)
    }

    pub(crate) fn client(&self, protocol: &[u8]) -> Result<Arc<ClientConfig>> {
        let config = ClientConfig::builder_with_provider(Self::provider());
        let config = config.with_protocol_versions(&[&version::TLS13]).map_err(tls)?;
        let config = config.with_root_certificates(self.authority.clone());
        let mut config =
            config.with_client_auth_cert(self.chain.clone(), self.key.clone_key()).map_err(tls)?;
        config.alpn_protocols = vec![protocol.to_vec()];
        config.resumption = rustls::client::Resumption::disabled();
        Ok(Arc::new(config))
    }

    pub(crate) fn server(&self) -> Result<Arc<ServerConfig>> {
        let clients = WebPkiClientVerifier::builder_with_provider(self.authority.clone(), Self::provider());
        let config = ServerConfig::builder_with_provider(Self::provider());
        let config = config.with_protocol_versions(&[&version::TLS13]).map_err(tls)?;
        let config = config.with_client_cert_verifier(clients.build().map_err(tls)?);
        let mut config = config.with_single_cert(self.chain.clone(), self.key.clone_key()).map_err(tls)?;
        config.alpn_protocols = vec![PROTOCOL.to_vec(), LANE_PROTOCOL.to_vec()];
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }
}

fn refused(path: &Path, error: impl std::fmt::Display) -> Error {
    Error::Certificate { path: path.to_owned(), what: error.to_string() }
}

/// The certificates of a PEM file, of which there is one at least.
fn certificates((path, pem): (&Path, &[u8])) -> Result<Vec<CertificateDer<'static>>> {
    let found = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let found = found.map_err(|error| refused(path, error))?;
    if found.is_empty() {
        return Err(refused(path, "there is no certificate in it"));
    }
    Ok(found)
}

/// Where [`make_test_certificates`] puts what it makes.
#[derive(Debug, Clone)]
pub struct CertificateFiles {
    /// The authority that signed both certificates. Its key is not kept.
    pub authority: PathBuf,
    /// The server's certificate and key.
    pub server: [PathBuf; 2],
    /// The client's certificate and key.
    pub client: [PathBuf; 2],
}

impl CertificateFiles {
    /// The files of a folder.
    pub fn of(folder: &Path) -> Self {
        Self {
            authority: folder.join("ca.pem"),
            server: ["server.pem", "server.key"].map(|name| folder.join(name)),
            client: ["client.pem", "client.key"].map(|name| folder.join(name)),
        }
    }

    /// The server's identity.
    pub fn server(&self) -> Result<Identity> {
        Identity::load(&self.server[0], &self.server[1], &self.authority)
    }

    /// The client's identity.
    pub fn client(&self) -> Result<Identity> {
        Identity::load(&self.client[0], &self.client[1], &self.authority)
    }
}

/// An authority, a server that has `names`, and a client, for a first try: files in `folder` that must not
/// exist.
pub fn make_test_certificates(folder: &Path, names: &[String]) -> Result<CertificateFiles> {
    let files = CertificateFiles::of(folder);
    let mut authority = CertificateParams::default();
    authority.distinguished_name.push(DnType::CommonName, "gatework test authority");
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let authority =
        CertifiedIssuer::self_signed(authority, KeyPair::generate().map_err(tls)?).map_err(tls)?;
    write_new(&files.authority, &authority.pem(), 0o644)?;
    let parties = [
        (&files.server, "gatework test server", names.to_vec(), ExtendedKeyUsagePurpose::ServerAuth),
        (&files.client, "gatework test client", Vec::new(), ExtendedKeyUsagePurpose::ClientAuth),
    ];
    for ([certificate, key], common_name, names, usage) in parties {
        let mut params = CertificateParams::new(names).map_err(tls)?;
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.extended_key_usages = vec![usage];
        params.use_authority_key_identifier_extension = true;
        let pair = KeyPair::generate().map_err(tls)?;
        let signed = params.signed_by(&pair, &authority).map_err(tls)?;
        write_new(certificate, &signed.pem(), 0o644)?;
        write_new(key, &pair.serialize_pem(), 0o600)?;
    }
    Ok(files)
}

fn write_new(path: &Path, text: &str, mode: u32) -> Result<()> {
    let failed = |source| Error::File { path: path.to_owned(), doing: "create", source };
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(mode);
    options.open(path).and_then(|mut file| file.write_all(text.as_bytes())).map_err(failed)
}
