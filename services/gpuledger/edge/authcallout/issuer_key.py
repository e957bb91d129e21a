"""Reads the key with which the auth callout service issues logins. No message holds a key."""

from pathlib import Path
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from gpuledger.ledger.nkeys import KeyKind, KeyTextError, public_text, seed_key
from gpuledger.runtime.settings import SettingsError

PEM: Final = "-----BEGIN"


def read_issuer_key(file: Path) -> Ed25519PrivateKey:
    """The key in a file, which has an account's seed (`SA...`) or an Ed25519 key in PEM.

    Raises:
        SettingsError: it has neither.
    """
    try:
        text = file.read_text().strip()
        key = _from_pem(text) if text.startswith(PEM) else _from_seed(text)
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise SettingsError(
            f"{file} has no seed of a NATS account (it begins with SA), and no Ed25519 key in PEM; "
            "make one with `gpuledger nats-keys`."
        ) from error
    return key


def issuer_of(key: Ed25519PrivateKey) -> str:
    """The public key as a server's configuration names it; it begins with A."""
    return public_text(KeyKind.ACCOUNT, key.public_key().public_bytes_raw())


def _from_seed(text: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(seed_key(KeyKind.ACCOUNT, text))


def _from_pem(text: str) -> Ed25519PrivateKey:
    key = load_pem_private_key(text.encode(), None)
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyTextError("it is no Ed25519 key")
    return key
