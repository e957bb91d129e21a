"""Whether seals fit the log that they were made of. Pure."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from gpuledger.events.ledger import LedgerSealed
from gpuledger.events.position import ORIGIN, Offset, is_same, next_after, order


class RecordedSeal(NamedTuple):
    """A seal, where the log has it, and whether it was restored with the log that it sealed."""

    position: Offset
    data: LedgerSealed
    is_restored: bool = False


class Comparison(NamedTuple):
    """How far seals cover the log, how many, the digest of the last, and the first that does not fit."""

    sealed_to: Offset
    seals: int
    newest: str | None
    first_break: str | None


def compare(seals: Collection[RecordedSeal], links: Mapping[Offset, str]) -> Comparison:
    """Compare seals with the chain's links at their last positions.

    They are compared in the order of what they cover, in which each builds on the one before. The log may have them in
    another order, and one several times: leaders that follow each other publish again what nobody has acknowledged.
    One may name a restored seal as the one before it, for so the first version of the service did; what it covers is
    proven by its digest all the same.
    """
    restored = {(one.data.last, one.data.digest) for one in seals if one.is_restored}
    own = sorted(
        (one for one in seals if not one.is_restored), key=lambda one: (order(one.data.last), order(one.position))
    )
    sealed_to, newest, count, first_break = ORIGIN, None, 0, None
    before: LedgerSealed | None = None
    for position, data, _ in own:
        if data == before:
            continue
        follows = data.previous == newest or (sealed_to, data.previous) in restored
        if not follows or not is_same(data.first, next_after(sealed_to)):
            first_break = first_break or f"the seal at {position} follows another seal than the one before it"
        elif links.get(data.last) != data.digest:
            first_break = first_break or f"the messages {data.first} to {data.last} are not those that were sealed"
        before, sealed_to, newest, count = data, data.last, data.digest, count + 1
    return Comparison(sealed_to, count, newest, first_break)
