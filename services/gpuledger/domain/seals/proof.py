"""Whether seals fit the log that they were made of. Pure."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gpuledger.events.ledger import LedgerSealed
from gpuledger.events.position import ORIGIN, Offset, is_same, next_after, order


class RecordedSeal(NamedTuple):
    """A seal, and where the log has it."""

    position: Offset
    data: LedgerSealed


class Comparison(NamedTuple):
    """How far seals cover the log, how many, the digest of the last, and the first that does not fit."""

    sealed_to: Offset
    seals: int
    newest: str | None
    first_break: str | None


def compare(seals: Iterable[RecordedSeal], links: Mapping[Offset, str]) -> Comparison:
    """Compare seals with the chain's links at their last positions.

    They are compared in the order of what they cover, in which each builds on the one before. The log may have them in
    another order, and one several times: leaders that follow each other publish again what nobody has acknowledged.
    """
    sealed_to, newest, count, first_break = ORIGIN, None, 0, None
    before: LedgerSealed | None = None
    for position, data in sorted(seals, key=lambda seal: (order(seal.data.last), order(seal.position))):
        if data == before:
            continue
        if not is_same(data.first, next_after(sealed_to)) or data.previous != newest:
            first_break = first_break or f"the seal at {position} follows another seal than the one before it"
        elif links.get(data.last) != data.digest:
            first_break = first_break or f"the messages {data.first} to {data.last} are not those that were sealed"
        before, sealed_to, newest, count = data, data.last, data.digest, count + 1
    return Comparison(sealed_to, count, newest, first_break)
