"""Whether seals fit the log that they were made of. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from gpuledger.events.ledger import LedgerSealed
from gpuledger.events.position import (
    ORIGIN,
    Offset,
    back,
    earliest,
    is_at_or_after,
    is_origin,
    next_after,
    number_of,
    order,
)


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


def unproven_before(seals: Iterable[RecordedSeal], links: Mapping[Offset, str]) -> Iterator[RecordedSeal]:
    """For each seal that follows one at whose end no link is known, that one, as one that was restored.

    It stands in a closed generation, or in what retention deleted, and is proven there or not at all.
    """
    for seal in seals:
        data, before = seal.data, back(seal.data.first, 1)
        if not is_origin(before) and before not in links and data.previous is not None:
            named = LedgerSealed(first=data.first, last=number_of(before), digest=data.previous)
            yield RecordedSeal(seal.position, named, is_restored=True)


def compare(seals: Collection[RecordedSeal], links: Mapping[Offset, str]) -> Comparison:
    """Compare seals with the chain's links at their last positions.

    They are compared in the order of what they cover. The log may have them in another order, and one several times:
    leaders that follow each other publish again what nobody has acknowledged. A link builds on everything before it, so
    seals that overlap prove no less. The first version of the service counted restored seals as its own: its seals
    overlap, and each may follow a restored one and name its digest.
    """
    restored = {(one.data.last, one.data.digest) for one in seals if one.is_restored}
    restored_to = {last for last, _ in restored}
    own: dict[LedgerSealed, Offset] = {}
    for one in seals:
        if not one.is_restored:
            own.setdefault(one.data, one.position)
    sealed_to, newest, first_break = ORIGIN, None, None
    for data, position in sorted(own.items(), key=lambda item: (order(item[0].last), order(item[1]))):
        before = back(data.first, 1)
        is_next = is_at_or_after(sealed_to, before) or before in restored_to
        names_previous = data.previous == links.get(before) or (before, data.previous) in restored
        if links.get(data.last) != data.digest:
            first = earliest(data.first, next_after(sealed_to))
            first_break = first_break or f"the messages {first} to {data.last} are not those that were sealed"
        elif not is_next or not names_previous:
            first_break = first_break or f"the seal at {position} follows another seal than the one before it"
        sealed_to, newest = data.last, data.digest
    return Comparison(sealed_to, len(own), newest, first_break)
