"""Creates, reads and renews the authority that API servers trust and the certificate that the webhooks show.

Reads no clock and no file. A certificate is renewed after two thirds of its life. An authority stays trusted beside its
successor until it expires, and a new one signs nothing until it has been in the bundle for a while, so that no API
server ever meets a certificate whose authority it does not trust yet.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from gpuledger.edge.kube import pki
from gpuledger.edge.webhooks.errors import CertificateError

AUTHORITY_LIFE: Final = timedelta(days=3650)
SERVING_LIFE: Final = timedelta(days=90)
SETTLING: Final = timedelta(hours=1)
"""How long a new authority is only published, while there is a certificate that is still valid."""

AUTHORITIES_MAX: Final = 4
"""How many authorities the bundle holds; the oldest is dropped first."""

_AUTHORITY_NAME: Final = "gpu-control-plane webhook CA"

CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
BUNDLE: Final = "ca.crt"


class Profile(NamedTuple):
    """What the certificates of a kind of server have in common; peers show theirs to each other."""

    name: str
    life: timedelta = SERVING_LIFE
    is_peer: bool = False


WEBHOOKS: Final = Profile("gpu-control-plane webhooks")


class Pair(NamedTuple):
    """A certificate with its key, and the authorities to trust beside it; all as PEM."""

    certificate: bytes
    key: bytes
    bundle: bytes

    def data(self) -> dict[str, bytes]:
        """As a secret of type `kubernetes.io/tls` holds it."""
        return {CERTIFICATE: self.certificate, KEY: self.key, BUNDLE: self.bundle}


def read_pair(data: Mapping[str, bytes]) -> Pair:
    """The pair in the data of a secret.

    Raises:
        CertificateError: the secret holds no certificate with its key.
    """
    try:
        pair = Pair(data[CERTIFICATE], data[KEY], data[BUNDLE])
        certificate, key = _certificate(pair), _key(pair)
        x509.load_pem_x509_certificates(pair.bundle)
    except (KeyError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise CertificateError(f"The secret holds no certificate with its key ({error!r}).") from error
    if certificate.public_key() != key.public_key():
        raise CertificateError("The secret's key is not that of its certificate.")
    return pair


def authority_at(current: Pair | None, now: datetime, name: str = _AUTHORITY_NAME) -> Pair:
    """The authority to use: the current one, or a new one whose bundle also has the former ones until they expire."""
    if current is not None and _is_in_force(current, now):
        return current
    issued = pki.new_authority(name, now, AUTHORITY_LIFE)
    made = pki.certificate_pem(issued.certificate)
    older = [] if current is None else x509.load_pem_x509_certificates(current.bundle)
    kept = [pki.certificate_pem(one) for one in older if one.not_valid_after_utc > now]
    return Pair(made, pki.key_pem(issued.key), b"".join([made, *kept][:AUTHORITIES_MAX]))


def serving_at(
    current: Pair | None, authority: Pair, names: tuple[str, ...], now: datetime, profile: Profile = WEBHOOKS
) -> Pair:
    """The certificate to show for these host names and addresses: the current one, or a new one."""
    if current is not None and _still_serves(current, authority, names, now):
        return current
    signer = pki.Issued(_certificate(authority), _key(authority))
    issued = pki.new_serving(profile.name, names, signer, now, profile.life, is_peer=profile.is_peer)
    return Pair(pki.certificate_pem(issued.certificate), pki.key_pem(issued.key), authority.bundle)


def is_old(pair: Pair, now: datetime) -> bool:
    """Whether two thirds of the certificate's life are over."""
    certificate = _certificate(pair)
    begun, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return now >= begun + (ends - begun) * 2 / 3


def expires_at(pair: Pair) -> datetime:
    """When the certificate expires."""
    return _certificate(pair).not_valid_after_utc


def _still_serves(current: Pair, authority: Pair, names: tuple[str, ...], now: datetime) -> bool:
    certificate = _certificate(current)
    if set(_names_of(certificate)) != set(map(pki.general_name, names)) or not _is_trusted(certificate, authority, now):
        return False
    if not is_old(current, now):
        return True
    made_at = _certificate(authority).not_valid_before_utc + pki.BACKDATED
    return now < made_at + SETTLING and now < certificate.not_valid_after_utc - SETTLING


def _is_in_force(authority: Pair, now: datetime) -> bool:
    """Whether what the authority signs is trusted by its own bundle, now and for a while."""
    certificate = _certificate(authority)
    is_published = certificate in x509.load_pem_x509_certificates(authority.bundle)
    return is_published and _may_sign(certificate) and _holds(certificate, now) and not is_old(authority, now)


def _may_sign(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _is_trusted(certificate: x509.Certificate, authority: Pair, now: datetime) -> bool:
    signers = x509.load_pem_x509_certificates(authority.bundle)
    return _holds(certificate, now) and any(_has_signed(one, certificate) for one in signers if _holds(one, now))


def _holds(certificate: x509.Certificate, now: datetime) -> bool:
    """Whether a certificate is valid; it may not be yet, if it was created by a clock that was wrong."""
    return certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc


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


def _certificate(pair: Pair) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pair.certificate)


def _key(pair: Pair) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pair.key, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError("the key is not one of an elliptic curve")
    return key
