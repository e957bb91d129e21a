"""The authority that API servers trust, and the certificate that the webhooks show: made, read, and renewed in time.

Nothing here reads a clock or a file. Two thirds of its life after it was made a certificate is made anew. An authority
stays trusted beside its successor until it expires, and a new one signs nothing until it has been in the bundle for a
while, so that no API server ever meets a certificate whose authority it does not know yet.
"""

import ipaddress
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gpuledger.admission.errors import CertificateError

AUTHORITY_LIFE: Final = timedelta(days=3650)
SERVING_LIFE: Final = timedelta(days=90)
SETTLING: Final = timedelta(hours=1)
"""How long a new authority is only made known, while there is a certificate that still holds."""

BACKDATED: Final = timedelta(minutes=5)
"""Clocks differ."""

AUTHORITIES_MAX: Final = 4
"""How many authorities the bundle holds; the oldest go first."""

_AUTHORITY_NAME: Final = "gpu-control-plane webhook CA"
_SERVING_NAME: Final = "gpu-control-plane webhooks"

CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
BUNDLE: Final = "ca.crt"


class Pair(NamedTuple):
    """A certificate with its key, and the authorities that are trusted beside it; all as PEM."""

    certificate: bytes
    key: bytes
    bundle: bytes

    def data(self) -> dict[str, bytes]:
        """As a secret of type `kubernetes.io/tls` holds it."""
        return {CERTIFICATE: self.certificate, KEY: self.key, BUNDLE: self.bundle}


def read_pair(data: Mapping[str, bytes]) -> Pair:
    """What a secret holds.

    Raises:
        CertificateError: it is no certificate with its key.
    """
    try:
        pair = Pair(data[CERTIFICATE], data[KEY], data[BUNDLE])
        certificate, key = _certificate(pair), _key(pair)
        x509.load_pem_x509_certificates(pair.bundle)
    except (KeyError, ValueError, TypeError) as error:
        raise CertificateError(f"The secret holds no certificate with its key ({error!r}).") from error
    if certificate.public_key() != key.public_key():
        raise CertificateError("The secret's key is not that of its certificate.")
    return pair


def authority_at(known: Pair | None, now: datetime) -> Pair:
    """The authority to use: the known one, or a new one whose bundle trusts the known ones too while they hold."""
    if known is not None and not is_old(known, now):
        return known
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(_AUTHORITY_NAME)
    certificate = (
        _builder(name, name, key, now, AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    made = _pem(certificate)
    older = [] if known is None else x509.load_pem_x509_certificates(known.bundle)
    kept = [_pem(one) for one in older if one.not_valid_after_utc > now]
    return Pair(made, _key_pem(key), b"".join([made, *kept][:AUTHORITIES_MAX]))


def serving_at(known: Pair | None, authority: Pair, names: tuple[str, ...], now: datetime) -> Pair:
    """The certificate to show for these host names and addresses: the known one, or a new one."""
    if known is not None and _still_serves(known, authority, names, now):
        return known
    signer, signer_key = _certificate(authority), _key(authority)
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _builder(_name(_SERVING_NAME), signer.subject, key, now, SERVING_LIFE)
        .add_extension(x509.SubjectAlternativeName(_general_names(names)), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer_key.public_key()), critical=False)
        .sign(signer_key, hashes.SHA256())
    )
    return Pair(_pem(certificate), _key_pem(key), authority.bundle)


def is_old(pair: Pair, now: datetime) -> bool:
    """Whether two thirds of the certificate's life are over."""
    certificate = _certificate(pair)
    begun, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return now >= begun + (ends - begun) * 2 / 3


def expires_at(pair: Pair) -> datetime:
    """When the certificate ceases to hold."""
    return _certificate(pair).not_valid_after_utc


def _still_serves(known: Pair, authority: Pair, names: tuple[str, ...], now: datetime) -> bool:
    certificate = _certificate(known)
    if set(_names_of(certificate)) != set(_general_names(names)) or not _is_trusted(certificate, authority, now):
        return False
    if not is_old(known, now):
        return True
    made_at = _certificate(authority).not_valid_before_utc + BACKDATED
    return now < made_at + SETTLING and now < certificate.not_valid_after_utc - SETTLING


def _is_trusted(certificate: x509.Certificate, authority: Pair, now: datetime) -> bool:
    signers = x509.load_pem_x509_certificates(authority.bundle)
    holds = certificate.not_valid_after_utc > now
    return holds and any(_has_signed(one, certificate) for one in signers if one.not_valid_after_utc > now)


def _has_signed(signer: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(signer)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def _names_of(certificate: x509.Certificate) -> list[x509.GeneralName]:
    try:
        return list(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        return []


def _general_names(names: tuple[str, ...]) -> list[x509.GeneralName]:
    return [_general_name(name) for name in names]


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _certificate(pair: Pair) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pair.certificate)


def _key(pair: Pair) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pair.key, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError("the key is none of an elliptic curve")
    return key


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, life: timedelta
) -> x509.CertificateBuilder:
    begins = now.astimezone(UTC) - BACKDATED
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
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


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
