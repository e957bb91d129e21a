"""JWTs as NATS writes them, and keys as text."""

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.ledger.jwt import JwtError, SigningKey, encoded, signed_by, unverified
from gpuledger.ledger.nkeys import KeyKind, KeyTextError, public_key, public_text, seed_key, seed_text
from support.nkeys import ACCOUNT, Key

KEY = SigningKey(KeyKind.ACCOUNT, Ed25519PrivateKey.from_private_bytes(bytes(range(32))))


def test_what_is_written_is_read_and_nothing_that_was_changed() -> None:
    text = encoded({"sub": "U1", "nats": {"type": "user"}}, KEY)
    claims = signed_by(KeyKind.ACCOUNT, text)
    assert (claims["sub"], claims["iss"][0]) == ("U1", "A")
    assert len(claims["jti"]) == 52
    assert unverified(text) == claims
    head, body, signature = text.split(".")
    other = encoded({"sub": "U2", "nats": {"type": "user"}}, KEY).split(".")[1]
    for changed in (f"{head}.{other}.{signature}", f"{head}.{body}.AAAA", f"{head}.{body}.", f"{head}.{body}"):
        with pytest.raises(JwtError):
            signed_by(KeyKind.ACCOUNT, changed)
    with pytest.raises(JwtError):
        signed_by(KeyKind.SERVER, text)


@given(st.text())
def test_no_text_breaks_the_reader(text: str) -> None:
    for read in (unverified, lambda one: signed_by(KeyKind.SERVER, one)):
        with pytest.raises(JwtError):
            read(text)


@pytest.mark.parametrize("kind", KeyKind)
def test_keys_as_text(kind: KeyKind) -> None:
    raw = bytes(range(32))
    assert public_key(kind, public_text(kind, raw)) == raw
    assert seed_key(kind, seed_text(kind, raw)) == raw
    assert (
        public_text(kind, raw)[0] + seed_text(kind, raw)[:2]
        == {"ACCOUNT": "ASA", "SERVER": "NSN", "OPERATOR": "OSO", "USER": "USU", "CURVE": "XSX"}[kind.name]
    )
    for text in ("", "A", "ü", public_text(kind, raw)[:-1] + "A", seed_text(kind, raw)):
        with pytest.raises(KeyTextError):
            public_key(kind, text)


def test_texts_are_those_of_another_implementation() -> None:
    key = Key(ACCOUNT)
    raw = seed_key(KeyKind.ACCOUNT, key.seed)
    public = Ed25519PrivateKey.from_private_bytes(raw).public_key().public_bytes_raw()
    assert public_text(KeyKind.ACCOUNT, public) == key.public
