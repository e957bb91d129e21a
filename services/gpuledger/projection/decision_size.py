"""How large a decision may be that has no number yet: what the ledger would refuse must not be committed. Pure."""

from typing import Final

from gpuledger.events.envelope import Decoded, encode, parse
from gpuledger.projection.route import EPOCH_LENGTH_MAX

NUMBERING_BYTES_MAX: Final = EPOCH_LENGTH_MAX + 32
"""How much a decision may grow between its making and its publishing, when it gets its number."""


def is_too_large(event: Decoded, bytes_max: int) -> bool:
    """Whether the ledger, which takes messages of `bytes_max`, might refuse a decision."""
    return len(encode(event)) > bytes_max - NUMBERING_BYTES_MAX


def problem_of(event: Decoded, encoded: bytes, bytes_max: int) -> str | None:
    """Why the ledger might refuse a decision, which was encoded so, in words; None where it would not.

    Raises:
        EventError: nobody could read it back.
    """
    size, limit = len(encoded), bytes_max - NUMBERING_BYTES_MAX
    if size <= limit:
        parse(encoded)
        return None
    return (
        f"The decision {event.type} on {event.subject!r} has {size} bytes, and NATS takes {limit}; "
        "raise its max_payload if it should."
    )
