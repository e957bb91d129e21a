"""Ids of events, computed from their causes.

A republished event must carry the id that it had the first time, so ids follow from the event's cause and are never
random. They are UUIDs of version 5 (RFC 9562), written without the steps in between: every decision needs some.
"""

from hashlib import sha1
from typing import Final
from uuid import UUID

_VARIANTS: Final = "89ab" * 4
"""The digit of a UUID that shows its variant, by the one that stands in its place in the digest."""

_DERIVED = sha1(UUID("5a3f7f0e-6d0c-5c1e-9f57-6f1d1c2b7a10").bytes, usedforsecurity=False)
_IMPORTED = sha1(UUID("8c1b0f3a-2b5e-5d47-8d0e-3f6a9b4c2e21").bytes, usedforsecurity=False)


def derived_id(causation_id: str, event_type: str, subject: str) -> str:
    """The id of an event that a service derived from another one."""
    digest = _DERIVED.copy()
    digest.update(f"{causation_id}\n{event_type}\n{subject}".encode())
    return uuid_text(digest.hexdigest(), "5")


def imported_id(file_digest: str, line: int, kind: str) -> str:
    """The id of an event that an importer read from a line (1 is the first) of a file."""
    digest = _IMPORTED.copy()
    digest.update(f"{file_digest}\n{line}\n{kind}".encode())
    return uuid_text(digest.hexdigest(), "5")


def uuid_text(digits: str, version: str) -> str:
    """The UUID of a version that has these hexadecimal digits, 32 or more, but for its version and variant."""
    variant = _VARIANTS[int(digits[16], 16)]
    return f"{digits[:8]}-{digits[8:12]}-{version}{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:32]}"
