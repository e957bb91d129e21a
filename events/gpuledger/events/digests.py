"""Digests of recorded messages, one by one and in a chain. Pure; hexadecimal SHA-256, 64 digits."""

from hashlib import sha256
from struct import Struct
from typing import Final

NOTHING: Final = "0" * 64
"""The link before the first message of a ledger."""

_LENGTH: Final = Struct(">Q").pack


def digest_of(subject: str, data: bytes) -> str:
    """The digest of a message: its subject and its body, each behind its length in 8 bytes, the highest first."""
    return _digest(subject, data).hex()


def chained(link: str, subject: str, data: bytes) -> str:
    """The next link of a chain: the digest of the link before it and the message's digest, 32 bytes each."""
    return sha256(bytes.fromhex(link) + _digest(subject, data)).hexdigest()


def chained_digest(link: str, digest: str) -> str:
    """The next link of a chain, from the digest of the message alone."""
    return sha256(bytes.fromhex(link) + bytes.fromhex(digest)).hexdigest()


def _digest(subject: str, data: bytes) -> bytes:
    encoded = subject.encode()
    # In one piece, because every message comes by here, and most are short.
    return sha256(_LENGTH(len(encoded)) + encoded + _LENGTH(len(data)) + data).digest()
