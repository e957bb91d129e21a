"""NATS keys as text: 32 bytes with a prefix that says whose they are, and a checksum. Pure.

All are Ed25519 keys, but for those of kind `CURVE`, which encrypt (X25519).
"""

import base64
import binascii
from enum import IntEnum
from typing import Final

KEY_BYTES: Final = 32
_SEED: Final = 18 << 3
"""The first byte of every seed, which makes its text begin with S."""


class KeyTextError(ValueError):
    """A text is no key of its kind."""


class KeyKind(IntEnum):
    """Whose a key is: the first byte of its public text, which decides the letter that the text begins with."""

    ACCOUNT = 0
    """A; of seeds SA."""

    SERVER = 13 << 3
    """N; of seeds SN."""

    OPERATOR = 14 << 3
    """O; of seeds SO."""

    USER = 20 << 3
    """U; of seeds SU."""

    CURVE = 23 << 3
    """X; of seeds SX."""


def public_text(kind: KeyKind, key: bytes) -> str:
    """The text of a public key."""
    return _text(bytes((kind,)) + key)


def public_key(kind: KeyKind, text: str) -> bytes:
    """The 32 bytes behind the text of a public key.

    Raises:
        KeyTextError: it is none of this kind.
    """
    return _raw(text, bytes((kind,)), f"public key of {_named(kind)}")


def seed_text(kind: KeyKind, key: bytes) -> str:
    """The text of a private key, which is a secret."""
    return _text(_seed_prefix(kind) + key)


def seed_key(kind: KeyKind, text: str) -> bytes:
    """The 32 bytes behind a seed.

    Raises:
        KeyTextError: it is none of this kind; the message does not hold it.
    """
    return _raw(text, _seed_prefix(kind), f"seed of {_named(kind)}")


def _named(kind: KeyKind) -> str:
    return {KeyKind.CURVE: "an xkey", KeyKind.OPERATOR: "a NATS operator"}.get(kind, f"a NATS {kind.name.lower()}")


def _seed_prefix(kind: KeyKind) -> bytes:
    return bytes((_SEED | kind >> 5, (kind & 31) << 3))


def _text(raw: bytes) -> str:
    return base64.b32encode(raw + _checksum(raw)).decode().rstrip("=")


def _raw(text: str, prefix: bytes, what: str) -> bytes:
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
    except (binascii.Error, ValueError):
        raw = b""
    key = raw[len(prefix) : -2]
    if not raw.startswith(prefix) or len(key) != KEY_BYTES or _checksum(raw[:-2]) != raw[-2:]:
        raise KeyTextError(f"it is damaged, or no {what}")
    return key


def _checksum(raw: bytes) -> bytes:
    return binascii.crc_hqx(raw, 0).to_bytes(2, "little")
