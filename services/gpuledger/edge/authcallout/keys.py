"""Reads the keys with which the auth callout service issues logins. No message holds a key."""

from pathlib import Path
from typing import Final, NamedTuple

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from gpuledger.edge.authcallout.decide import Answering
from gpuledger.edge.authcallout.xkey import CurveBox
from gpuledger.ledger.jwt import SigningKey
from gpuledger.ledger.nkeys import KeyKind, KeyTextError, public_key, seed_key
from gpuledger.runtime.settings import CALLOUT_ACCOUNT, CalloutSettings, SettingsError

PEM: Final = "-----BEGIN"


class CalloutKeys(NamedTuple):
    """What the service signs with: answers by `issuer`, users by `users`, which in operator mode is another account's.

    `account` is that account. `box` opens questions that a server has encrypted.
    """

    issuer: SigningKey
    users: SigningKey
    account: str | None = None
    box: CurveBox | None = None

    @property
    def answering(self) -> Answering:
        """The public keys."""
        return Answering(self.issuer.public, self.account)


def read_keys(settings: CalloutSettings) -> CalloutKeys:
    """The keys in the files that the settings name.

    Raises:
        SettingsError: one of them has none.
    """
    issuer = SigningKey(KeyKind.ACCOUNT, read_issuer_key(settings.seed))
    box = None if settings.xkey is None else _read_box(settings.xkey)
    if settings.account is None or settings.account_seed is None:
        return CalloutKeys(issuer, issuer, None, box)
    users = SigningKey(KeyKind.ACCOUNT, read_issuer_key(settings.account_seed))
    _refuse_odd_account(settings.account)
    return CalloutKeys(issuer, users, settings.account, box)


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
    return SigningKey(KeyKind.ACCOUNT, key).public


def _refuse_odd_account(account: str) -> None:
    try:
        public_key(KeyKind.ACCOUNT, account)
    except KeyTextError as error:
        raise SettingsError(
            f"{CALLOUT_ACCOUNT} is not usable: {error}; it is the public key of the agents' account (A...)."
        ) from error


def xkey_public(file: Path) -> str:
    """The public xkey in a file, which has it or its seed (`SX...`).

    Raises:
        SettingsError: it has neither.
    """
    try:
        text = file.read_text().strip()
        public_key(KeyKind.CURVE, text)
    except (OSError, ValueError):
        return _read_box(file).public
    return text


def _read_box(file: Path) -> CurveBox:
    try:
        return CurveBox(seed_key(KeyKind.CURVE, file.read_text().strip()))
    except (OSError, ValueError) as error:
        raise SettingsError(
            f"{file} has no seed of an xkey (it begins with SX); make one with `gpuledger nats-keys --xkey`."
        ) from error


def _from_seed(text: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(seed_key(KeyKind.ACCOUNT, text))


def _from_pem(text: str) -> Ed25519PrivateKey:
    key = load_pem_private_key(text.encode(), None)
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyTextError("it is no Ed25519 key")
    return key
