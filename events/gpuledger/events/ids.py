"""Ids of events, computed from their causes.

A republished event must carry the id that it had the first time, so ids follow from the event's cause and are never
random.
"""

from uuid import UUID, uuid5

_DERIVED = UUID("5a3f7f0e-6d0c-5c1e-9f57-6f1d1c2b7a10")
_IMPORTED = UUID("8c1b0f3a-2b5e-5d47-8d0e-3f6a9b4c2e21")


def derived_id(causation_id: str, event_type: str, subject: str) -> str:
    """The id of an event that a service derived from another one."""
    return str(uuid5(_DERIVED, f"{causation_id}\n{event_type}\n{subject}"))


def imported_id(file_digest: str, line: int, kind: str) -> str:
    """The id of an event that an importer read from a line (1 is the first) of a file."""
    return str(uuid5(_IMPORTED, f"{file_digest}\n{line}\n{kind}"))
