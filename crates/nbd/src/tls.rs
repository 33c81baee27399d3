//! Whether connections are encrypted, and with which certificate.

use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig};

/// Whether connections are encrypted.
#[derive(Debug, Clone, Default)]
pub enum Tls {
    /// Never.
    #[default]
    Off,
    /// If the client wants it.
    Allowed(Arc<ServerConfig>),
    /// Always: without TLS a client learns nothing, not even names.
    Required(Arc<ServerConfig>),
}

impl Tls {
    pub(crate) fn config(&self) -> Option<&Arc<ServerConfig>> {
        match self {
            Tls::Off => None,
            Tls::Allowed(config) | Tls::Required(config) => Some(config),
        }
    }

    pub(crate) fn required(&self) -> bool {
        matches!(self, Tls::Required(_))
    }
}

/// Why there is no TLS with what was given.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// It is not PEM, or not of what it should be.
    #[error("no certificate or key in PEM")]
    Pem(#[source] pem::Error),
    /// There is not one certificate.
    #[error("no certificate in PEM")]
    NoCertificate,
    /// The key does not fit the certificate, or either is of a kind that is not supported.
    #[error("the certificate and key cannot be used")]
    Unusable(#[source] rustls::Error),
    /// The authorities for clients cannot be used.
    #[error("the certificates of authorities for clients cannot be used")]
    Authorities(#[source] VerifierBuilderError),
}

/// TLS 1.2 and 1.3 with this chain of certificates and its key, as PEM. With `authorities`, clients must show a certificate
/// that one of them signed.
///
/// # Errors
/// What was given cannot be used, by variant.
pub fn tls_config(chain: &[u8], key: &[u8], authorities: Option<&[u8]>) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let key = PrivateKeyDer::from_pem_slice(key).map_err(TlsError::Pem)?;
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Unusable)?;
    let builder = match authorities {
        None => builder.with_no_client_auth(),
        Some(authorities) => {
            let mut roots = RootCertStore::empty();
            for authority in certificates(authorities)? {
                roots.add(authority).map_err(TlsError::Unusable)?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().map_err(TlsError::Authorities)?)
        }
    };
    Ok(Arc::new(builder.with_single_cert(certificates(chain)?, key).map_err(TlsError::Unusable)?))
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found.map_err(TlsError::Pem)? {
        none if none.is_empty() => Err(TlsError::NoCertificate),
        some => Ok(some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &[u8] = b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    const CERTIFICATE: &[u8] = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";

    #[test]
    fn what_is_no_certificate_is_refused() {
        assert!(matches!(tls_config(CERTIFICATE, b"", None), Err(TlsError::Pem(_))));
        assert!(matches!(tls_config(CERTIFICATE, CERTIFICATE, None), Err(TlsError::Pem(_))));
        assert!(matches!(tls_config(b"", KEY, None), Err(TlsError::NoCertificate)));
        assert!(matches!(tls_config(KEY, KEY, None), Err(TlsError::NoCertificate)));
        assert!(matches!(tls_config(CERTIFICATE, KEY, None), Err(TlsError::Unusable(_))));
        assert!(matches!(tls_config(CERTIFICATE, KEY, Some(CERTIFICATE)), Err(TlsError::Unusable(_))));
        assert!(matches!(tls_config(CERTIFICATE, KEY, Some(b"")), Err(TlsError::NoCertificate)));
    }
}
