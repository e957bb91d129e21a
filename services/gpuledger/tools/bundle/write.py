"""Writes a bundle: the events between the digests of what stands around them, as a ledger has it, and checks it."""

import os
from collections.abc import AsyncIterator, Iterable, Sequence
from hashlib import sha256
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from gpuledger.domain.seals.proof import RecordedSeal
from gpuledger.events.digests import NOTHING, digest_of
from gpuledger.events.ledger import LedgerSealed
from gpuledger.events.position import Offset, back, is_after, is_at_or_after, number_of, order
from gpuledger.ledger.api import Ledger
from gpuledger.tools.bundle.lines import (
    BUNDLE_BYTES_MAX,
    COMMITMENTS_MAX,
    DIGESTS_PER_LINE_MAX,
    SEALS_MAX,
    BundleError,
    Commitments,
    Digests,
    End,
    EventLine,
    Head,
    Line,
    Seal,
    Segment,
    Tail,
    encoded,
)
from gpuledger.tools.bundle.signing import signature
from gpuledger.tools.bundle.verify import Bundle, open_bundle
from gpuledger.tools.errors import RequestError, ToolError
from gpuledger.tools.log_archive import PART
from gpuledger.tools.log_proof import SEAL_SUBJECTS, seals_among


class Parts:
    """The parts of a bundle in the order of the log: seals with what they cover, and what no seal covers yet."""

    def __init__(self, ledger: Ledger, lines: dict[int, EventLine], seals: Sequence[RecordedSeal]) -> None:
        self._ledger = ledger
        self._lines = lines
        self._seals = seals

    async def read(self) -> AsyncIterator[Line]:
        """Every line between the head and the commitments."""
        rest = dict(self._lines)
        for one in self._seals:
            data = one.data
            covered = {at: line for at, line in rest.items() if data.first <= at <= data.last}
            if not covered:
                yield Seal(first=data.first, last=data.last, digest=data.digest, previous=data.previous)
                continue
            async for line in self._segment(data, covered):
                yield line
            rest = {at: line for at, line in rest.items() if at not in covered}
        yield Tail()
        for at in sorted(rest):
            yield rest[at]

    async def _segment(self, data: LedgerSealed, covered: dict[int, EventLine]) -> AsyncIterator[Line]:
        link = data.previous or self._ledger.identity.beginning or NOTHING
        yield Segment(first=data.first, last=data.last, link=link, digest=data.digest, previous=data.previous)
        digests: list[str] = []
        async for messages in self._ledger.history(back(data.first, 1), data.last):
            for message in messages:
                line = covered.get(number_of(message.sequence))
                if line is None:
                    digests.append(digest_of(message.subject, message.data))
                if digests and (line is not None or len(digests) == DIGESTS_PER_LINE_MAX):
                    yield Digests(digests=digests)
                    digests = []
                if line is not None:
                    yield line
        if digests:
            yield Digests(digests=digests)


async def seals_over(ledger: Ledger, places: Sequence[Offset], head: Offset) -> list[RecordedSeal]:
    """The seals from the first that covers one of these places to the last, only those that do where they are many."""
    if not places:
        return []
    problems: list[str] = []
    found: list[RecordedSeal] = []
    async for messages in ledger.history(back(places[0], 1), head, SEAL_SUBJECTS):
        found += (one for one in seals_among(messages, problems.append) if not one.is_restored)
    chain: list[RecordedSeal] = []
    for one in sorted(found, key=lambda one: order(one.data.last)):
        is_next = not chain or is_after(one.data.first, chain[-1].data.last)
        if is_next and is_at_or_after(one.data.last, places[0]):
            chain.append(one)
    covering = [one for one in chain if _covers(one, places)]
    if not covering or not _covers(covering[0], places[:1]):
        chain = covering
    between = chain[: chain.index(covering[-1]) + 1] if covering else []
    return between if len(between) <= SEALS_MAX else covering


def _covers(one: RecordedSeal, places: Iterable[Offset]) -> bool:
    return any(is_at_or_after(place, one.data.first) and is_at_or_after(one.data.last, place) for place in places)


async def write_bundle(
    path: Path, head: Head, parts: Parts, commitments: dict[str, str], key: Ed25519PrivateKey | None
) -> Bundle:
    """Write under another name until the bundle is complete and right, so that no file of that name is ever a part."""
    if len(commitments) > COMMITMENTS_MAX:
        raise RequestError(
            f"The bundle would have {len(commitments):,} redacted values, and may have {COMMITMENTS_MAX:,}",
            "Redact fewer kinds of values, or withhold a type of events",
        )
    part = path.with_name(f"{path.name}{PART}")
    try:
        with part.open("wb") as file:
            digest, size, events = sha256(), 0, 0
            async for line in _all_lines(head, parts, commitments):
                raw = encoded(line)
                size, events = size + len(raw), events + isinstance(line, EventLine)
                if size > BUNDLE_BYTES_MAX:
                    raise RequestError(
                        f"The bundle would have more than {BUNDLE_BYTES_MAX:,} bytes",
                        "`gpuledger log export` writes the whole log",
                    )
                digest.update(raw)
                file.write(raw)
            file.write(encoded(_end(events, digest.hexdigest(), key)))
            file.flush()
            os.fsync(file.fileno())
        with part.open("rb") as file:
            bundle = open_bundle(file)
        part.replace(path)
    except OSError as error:
        raise RequestError(f"{path} cannot be written: {error.strerror}", "Name another file") from error
    except BundleError as error:
        raise ToolError(
            f"The log is not what was sealed: {error.message}", "`gpuledger verify --log` says more"
        ) from error
    finally:
        part.unlink(missing_ok=True)
    return bundle


async def _all_lines(head: Head, parts: Parts, commitments: dict[str, str]) -> AsyncIterator[Line]:
    yield head
    async for line in parts.read():
        yield line
    if commitments:
        yield Commitments(of=commitments)


def _end(events: int, digest: str, key: Ed25519PrivateKey | None) -> End:
    if key is None:
        return End(events=events, digest=digest)
    public, signed = signature(key, digest)
    return End(events=events, digest=digest, key=public, signature=signed)
