"""The webhooks' certificates: made, read, renewed in time, and never shown before they are trusted."""

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from gpuledger.edge.kube.pki import BACKDATED
from gpuledger.edge.webhooks.certificates.authority import (
    AUTHORITIES_MAX,
    AUTHORITY_LIFE,
    SERVING_LIFE,
    SETTLING,
    Pair,
    authority_at,
    expires_at,
    read_pair,
    serving_at,
)
from gpuledger.edge.webhooks.errors import CertificateError

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = ("gpu-control-plane-admission.d8-gpu-operator.svc", "127.0.0.1")
TWO_THIRDS = SERVING_LIFE * 2 / 3 - BACKDATED
UNKNOWN_CURVE = b"""-----BEGIN PRIVATE KEY-----
ME4CAQAwEAYHKoZIzj0CAQYFK4EEAAYENzA1AgEBBA50cXFvNu+JWvUsJZ4BAKEg
Ax4ABHV58vJp2fDYgWmR1hjgfLBe0FCbWKV6r2ll4FU=
-----END PRIVATE KEY-----
"""
"""What `openssl ecparam -name secp112r1 -genkey` writes."""


def certificates_of(pem: bytes) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(pem)


def is_signed_by(pair: Pair, authority: bytes) -> bool:
    (certificate,) = certificates_of(pair.certificate)
    signers = certificates_of(authority)
    names = [
        one
        for one in signers
        if one.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
        == certificate.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier
    ]
    for one in names:
        certificate.verify_directly_issued_by(one)
    return bool(names)


def test_there_is_an_authority_and_a_certificate() -> None:
    authority = authority_at(None, NOW)
    serving = serving_at(None, authority, NAMES, NOW)
    assert is_signed_by(serving, authority.bundle)
    assert expires_at(serving) == NOW - BACKDATED + SERVING_LIFE
    assert expires_at(authority) == NOW - BACKDATED + AUTHORITY_LIFE
    (certificate,) = certificates_of(serving.certificate)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [NAMES[0]]
    assert [str(one) for one in names.get_values_for_type(x509.IPAddress)] == [NAMES[1]]


def test_what_holds_is_kept() -> None:
    authority = authority_at(None, NOW)
    serving = serving_at(None, authority, NAMES, NOW)
    for later in (timedelta(0), TWO_THIRDS - timedelta(seconds=1)):
        assert authority_at(authority, NOW + later) is authority
        assert serving_at(serving, authority, NAMES, NOW + later) is serving


def test_a_certificate_is_renewed_after_two_thirds_of_its_life() -> None:
    authority = authority_at(None, NOW)
    serving = serving_at(None, authority, NAMES, NOW)
    renewed = serving_at(serving, authority, NAMES, NOW + TWO_THIRDS)
    assert renewed != serving
    assert is_signed_by(renewed, authority.bundle)


@pytest.mark.parametrize("names", [("other.svc",), (NAMES[0],)])
def test_a_certificate_for_other_names_is_made_anew(names: tuple[str, ...]) -> None:
    authority = authority_at(None, NOW)
    serving = serving_at(None, authority, NAMES, NOW)
    assert serving_at(serving, authority, names, NOW) != serving


def test_a_certificate_of_a_foreign_authority_is_made_anew() -> None:
    serving = serving_at(None, authority_at(None, NOW), NAMES, NOW)
    authority = authority_at(None, NOW)
    assert is_signed_by(serving_at(serving, authority, NAMES, NOW), authority.bundle)


def test_an_authority_is_renewed_with_an_overlap() -> None:
    first = authority_at(None, NOW)
    then = NOW + AUTHORITY_LIFE * 2 / 3
    second = authority_at(first, then)
    assert len(certificates_of(second.bundle)) == 2
    assert second.bundle.startswith(second.certificate)
    assert second.bundle.endswith(first.certificate)
    assert authority_at(second, then) is second


def test_an_expired_authority_is_trusted_no_more() -> None:
    first = authority_at(None, NOW)
    second = authority_at(first, NOW + AUTHORITY_LIFE)
    assert second.bundle == second.certificate
    serving = serving_at(None, first, NAMES, NOW + AUTHORITY_LIFE - timedelta(days=40))
    assert serving_at(serving, second, NAMES, NOW + AUTHORITY_LIFE) != serving


def test_the_bundle_is_bounded() -> None:
    authority, now = None, NOW
    for _ in range(8):
        former, now = authority, now + AUTHORITY_LIFE * 2 / 3
        authority = authority_at(former, now)
    assert authority is not None
    assert len(certificates_of(authority.bundle)) <= AUTHORITIES_MAX


def test_a_new_authority_signs_nothing_until_it_is_published() -> None:
    first = authority_at(None, NOW)
    renewal = NOW + AUTHORITY_LIFE * 2 / 3
    serving = serving_at(None, first, NAMES, renewal - TWO_THIRDS)
    second = authority_at(first, renewal)
    assert serving_at(serving, second, NAMES, renewal) is serving
    settled = serving_at(serving, second, NAMES, renewal + SETTLING)
    assert is_signed_by(settled, second.certificate)
    assert not is_signed_by(serving, second.certificate)


def test_a_certificate_that_is_about_to_expire_does_not_wait_for_that() -> None:
    first = authority_at(None, NOW)
    renewal = NOW + AUTHORITY_LIFE * 2 / 3
    serving = serving_at(None, first, NAMES, renewal - SERVING_LIFE + SETTLING)
    assert serving_at(serving, authority_at(first, renewal), NAMES, renewal) != serving


def test_what_a_secret_holds_is_read_back() -> None:
    authority = authority_at(None, NOW)
    assert read_pair(authority.data()) == authority


def test_a_secret_without_a_certificate_and_its_key_is_an_error() -> None:
    one, other = authority_at(None, NOW).data(), authority_at(None, NOW).data()
    for bad in ({}, one | {"tls.crt": b"x"}, one | {"tls.key": b""}, one | {"tls.key": other["tls.key"]}):
        with pytest.raises(CertificateError):
            read_pair(bad)


def odd_authority(*, signs: bool) -> Pair:
    """An authority whose certificate is not in its own bundle, or says that it signs nothing."""
    one, other = authority_at(None, NOW), authority_at(None, NOW)
    if signs:
        return one._replace(bundle=other.bundle)
    serving = serving_at(None, one, NAMES, NOW)
    return serving._replace(bundle=serving.certificate)


@pytest.mark.parametrize("signs", [True, False])
def test_an_authority_that_nobody_could_trust_is_made_anew(signs: bool) -> None:
    odd = odd_authority(signs=signs)
    authority = authority_at(odd, NOW)
    assert authority.certificate != odd.certificate
    serving = serving_at(None, authority, NAMES, NOW)
    assert is_signed_by(serving, authority.bundle)
    assert authority_at(authority, NOW) is authority
    assert serving_at(serving, authority, NAMES, NOW) is serving


def test_what_a_clock_that_was_ahead_made_is_made_anew() -> None:
    ahead = NOW + timedelta(days=1)
    former = authority_at(None, ahead)
    authority = authority_at(former, NOW)
    assert authority.certificate != former.certificate
    serving = serving_at(serving_at(None, former, NAMES, ahead), authority, NAMES, NOW)
    assert is_signed_by(serving, authority.certificate)
    for later in (NOW, ahead):
        assert serving_at(serving, authority_at(authority, later), NAMES, later) is serving


def test_a_key_of_an_unsupported_curve_is_an_error() -> None:
    with pytest.raises(CertificateError, match="not supported"):
        read_pair(authority_at(None, NOW).data() | {"tls.key": UNKNOWN_CURVE})
