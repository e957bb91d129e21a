"""A certificate authority and a server certificate, made for one folder and kept there.

Keys are readable by their owner alone. A certificate that is about to expire is made anew at the next start.
"""

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID_DAYS = 365
RENEWED_BEFORE_DAYS = 30
_BACKDATED = timedelta(minutes=5)
_PRIVATE_MODE = 0o600


class Certificates(NamedTuple):
    """Where the files lie."""

    ca: Path
    certificate: Path
    key: Path

    def server_context(self) -> ssl.SSLContext:
        """What a server needs to present them."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.certificate, self.key)
        return context


def certificates(directory: Path, host: str, now: datetime) -> Certificates:
    """The certificates in `directory`, made where there are none that hold for a while yet.

    Raises:
        OSError: the directory cannot be written.
    """
    files = Certificates(directory / "ca.crt", directory / "server.crt", directory / "server.key")
    if not _hold(files, now):
        directory.mkdir(parents=True, exist_ok=True)
        _make(files, host, now)
    return files


def _hold(files: Certificates, now: datetime) -> bool:
    if not all(path.is_file() for path in files):
        return False
    certificate = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    return certificate.not_valid_after_utc > now + timedelta(days=RENEWED_BEFORE_DAYS)


def _make(files: Certificates, host: str, now: datetime) -> None:
    ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    ca_name, name = _name("gpuledger embedded CA"), _name("gpuledger embedded API server")
    ca = (
        _builder(ca_name, ca_name, ca_key, now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs=True), critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    certificate = (
        _builder(name, ca_name, key, now)
        .add_extension(x509.SubjectAlternativeName(_names_of(host)), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    files.ca.write_bytes(ca.public_bytes(serialization.Encoding.PEM))
    files.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files.key.touch(mode=_PRIVATE_MODE)
    files.key.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now.astimezone(UTC) - _BACKDATED)
        .not_valid_after(now.astimezone(UTC) + timedelta(days=VALID_DAYS))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _key_usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _names_of(host: str) -> list[x509.GeneralName]:
    names: list[x509.GeneralName] = [
        x509.DNSName("localhost"),
        x509.DNSName("kubernetes.default.svc"),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    ]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return [*names, x509.DNSName(host)] if host else names
    return names if str(address) == "127.0.0.1" else [*names, x509.IPAddress(address)]
