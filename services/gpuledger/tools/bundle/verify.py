"""Reads a bundle line by line and checks every proof in it, without a ledger and without a server.

What is checked: the digests of a segment give the chain's link that its seal has, each segment and seal follows the one
before it, events are in the order of the log, and the last line has the digest of all others. Memory holds the events,
never the digests. A seal is the ledger's if its digest is: whoever doubts that compares it with the ledger's own. That
vouches for the segments before it as far as they follow each other without a gap, and for nothing else: what a seal
between segments covers is not here, so anybody can put a true digest there.
"""

from collections.abc import Collection, Iterator
from hashlib import sha256
from itertools import count
from typing import IO, NamedTuple

from gpuledger.events.catalogue import registry
from gpuledger.events.digests import chained_digest, digest_of
from gpuledger.events.envelope import Decoded, decode, nats_subject_of, stands_under
from gpuledger.events.errors import EventError
from gpuledger.events.position import Offset
from gpuledger.tools.bundle.lines import (
    BUNDLE_BYTES_MAX,
    DAMAGED,
    EVENT_BYTES_MAX,
    EVENTS_MAX,
    FORMAT,
    LINE_BYTES_MAX,
    SEALS_MAX,
    VERSION,
    BundleError,
    Commitments,
    Digests,
    End,
    EventLine,
    Head,
    Line,
    Recorded,
    Redacted,
    Seal,
    Segment,
    Tail,
    Withheld,
    decoded,
)
from gpuledger.tools.bundle.signing import is_signed

SEALED, UNSEALED = "sealed", "unsealed"
REDACTED, WITHHELD = "redacted", "withheld"
"""What stands for an event: the ledger's seal has it as it is; no seal has it yet; the seal has another form of it,
and this one is the exporter's word; or the seal has it, and it is not shown."""


class BundledEvent(NamedTuple):
    """An event of a bundle, and what stands for it; `event` is None where it is withheld.

    `in_seal` is whether a seal covers the message as it was recorded.
    """

    position: Offset
    recorded_ns: int
    event: Decoded | None
    type: str
    standing: str
    in_seal: bool


class Signer(NamedTuple):
    """The public key that signed a bundle, in hexadecimal, and whether the reader has named it."""

    key: str
    is_expected: bool


class Bundle(NamedTuple):
    """A bundle in which everything that can be checked is right.

    `gaps` counts the places where the chain of seals was left out because it is long. `to_compare` are the digests
    that vouch for all segments together, if each is one of the ledger's.
    """

    head: Head
    events: list[BundledEvent]
    commitments: dict[str, str]
    seals: int
    first_sealed: int | None
    sealed_to: int | None
    seal_digest: str | None
    to_compare: tuple[str, ...]
    gaps: int
    digest: str
    signer: Signer | None


def open_bundle(file: IO[bytes], *, expected_key: str | None = None, expected_seals: Collection[str] = ()) -> Bundle:
    """Read and check a bundle. With expected seals, each segment has to be vouched for by one of them.

    Raises:
        BundleError: it is too large, or not what was exported; or the key or the seal is another one.
    """
    reader = _Reader()
    for number, line in _lines(file):
        reader.take(number, line)
    bundle = reader.finished(expected_key)
    if expected_seals:
        reader.check_seals(expected_seals)
    return bundle


def _lines(file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    size = 0
    for number in count(1):
        raw = file.readline(LINE_BYTES_MAX + 1)
        size += len(raw)
        if len(raw) > LINE_BYTES_MAX:
            raise BundleError(f"Line {number} has more than {LINE_BYTES_MAX:,} bytes", "This is no bundle of ours")
        if size > BUNDLE_BYTES_MAX:
            raise BundleError(f"It has more than {BUNDLE_BYTES_MAX:,} bytes", "This is no bundle of ours")
        if not raw:
            return
        yield number, raw


class _Chain:
    """The chain of digests through a segment."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.next = segment.first
        self._link = segment.link

    def add(self, digest: str) -> None:
        if self.is_complete:
            raise _broken(self.segment, "it has more messages than its seal covers")
        self._link = chained_digest(self._link, digest)
        self.next += 1

    @property
    def is_complete(self) -> bool:
        return self.next > self.segment.last

    def finish(self) -> None:
        if not self.is_complete:
            raise _broken(self.segment, f"the message {self.next} is missing")
        if self._link != self.segment.digest:
            raise _broken(self.segment, "they are not those that were sealed")


class _Reader:
    def __init__(self) -> None:
        self._runs: list[list[Segment]] = []
        """The segments, those together that follow each other."""
        self._head: Head | None = None
        self._end: End | None = None
        self._digest = sha256()
        self._events: list[BundledEvent] = []
        self._commitments: dict[str, str] = {}
        self._chain: _Chain | None = None
        self._seal: Segment | Seal | None = None
        self._first_sealed: int | None = None
        self._seals = 0
        self._gaps = 0
        self._is_tail = False
        self._event_bytes = 0

    def take(self, number: int, raw: bytes) -> None:
        if self._end is not None:
            raise BundleError(f"Line {number} stands behind the end of the bundle", DAMAGED)
        line = decoded(raw, number)
        if (self._head is None) != isinstance(line, Head):
            raise BundleError(f"Line {number} is not where it belongs: the head comes first", "Is it a bundle at all?")
        if not isinstance(line, End):
            self._digest.update(raw)
        self._dispatch(number, line)

    def _dispatch(self, number: int, line: Line) -> None:
        match line:
            case Head():
                self._begin(line)
            case Segment() | Seal():
                self._follow(line)
            case Digests():
                for digest in line.digests:
                    self._in_segment(number).add(digest)
            case Recorded() | Redacted() | Withheld():
                self._add(number, line)
            case Tail():
                self._close_segment()
                self._is_tail = True
            case Commitments():
                if self._commitments:
                    raise BundleError(f"Line {number} repeats the commitments", DAMAGED)
                self._commitments = line.of
            case End():
                self._close_segment()
                self._end = line

    def _begin(self, line: Head) -> None:
        if line.version != VERSION:
            text = f"The bundle has version {line.version} of {FORMAT}; this build reads version {VERSION}"
            raise BundleError(text, "Open it with a newer build")
        self._head = line

    def _in_segment(self, number: int) -> _Chain:
        if self._chain is None:
            raise BundleError(f"Line {number} has digests outside a segment", DAMAGED)
        return self._chain

    def _close_segment(self) -> None:
        if self._chain is not None:
            self._chain.finish()
            self._chain = None

    def _follow(self, line: Segment | Seal) -> None:
        """The next seal: it follows the one before, or the chain between was left out."""
        self._close_segment()
        self._seals += 1
        if self._seals > SEALS_MAX or self._is_tail or line.last < line.first:
            raise _broken(line, "it is not where it belongs, or there are too many")
        before = self._seal
        if before is not None and line.first == before.last + 1:
            link = line.link if isinstance(line, Segment) else line.previous
            if line.previous != before.digest or link != before.digest:
                raise _broken(line, "its seal follows another one than the seal before it")
        elif before is not None and line.first <= before.last:
            raise _broken(line, "it is not in the order of the log")
        else:
            self._gaps += before is not None
        if isinstance(line, Segment):
            self._chain = _Chain(line)
            if isinstance(before, Segment) and line.first == before.last + 1:
                self._runs[-1].append(line)
            else:
                self._runs.append([line])
        if self._first_sealed is None:
            self._first_sealed = line.first
        self._seal = line

    def _add(self, number: int, line: EventLine) -> None:
        if len(self._events) >= EVENTS_MAX:
            raise BundleError(f"It has more than {EVENTS_MAX:,} events", "This is no bundle of ours")
        self._event_bytes += 0 if isinstance(line, Withheld) else len(line.data)
        if self._event_bytes > EVENT_BYTES_MAX:
            raise BundleError(f"Its events have more than {EVENT_BYTES_MAX:,} bytes", "This is no bundle of ours")
        if self._chain is None and not self._is_tail:
            raise BundleError(f"Line {number} has an event outside a segment", DAMAGED)
        if self._chain is not None:
            if line.at != self._chain.next:
                text = f"The event {line.at} stands at the place of the message {self._chain.next}"
                raise BundleError(text, DAMAGED)
            self._chain.add(_digest_of(line))
        elif line.at <= self._last():
            raise BundleError(f"The event {line.at} is not in the order of the log", DAMAGED)
        self._events.append(_bundled(line, in_seal=self._chain is not None))

    def _last(self) -> int:
        sealed = -1 if self._seal is None else self._seal.last
        return max(sealed, self._events[-1].position.__index__() if self._events else -1)

    def check_seals(self, expected: Collection[str]) -> None:
        """Refuse segments that none of these digests vouches for."""
        digests = {one.digest for run in self._runs for one in run}
        for digest in expected:
            if digest not in digests:
                text = f"No seal over events of the bundle has the digest {digest}"
                raise BundleError(text, "It is of another ledger, or forged")
        for run in self._runs:
            last = run[-1]
            if last.digest not in expected:
                text = f"None of these seals vouches for the messages {run[0].first} to {last.last}"
                raise BundleError(
                    text, f"Look for {last.digest} among the ledger's seals, and give it as --seal as well"
                )

    def finished(self, expected_key: str | None) -> Bundle:
        """The bundle, whose last line was read."""
        if self._head is None:
            raise BundleError("The file is empty", "Name a file that `gpuledger incident export` wrote")
        if self._end is None:
            raise BundleError("The bundle has no end: it is a part of one", DAMAGED)
        digest = self._digest.hexdigest()
        if self._end.digest != digest or self._end.events != len(self._events):
            raise BundleError("The bundle's digest at its end is not that of its lines", DAMAGED)
        seal = self._seal
        return Bundle(
            self._head, self._events, self._commitments, self._seals, self._first_sealed,
            None if seal is None else seal.last, None if seal is None else seal.digest,
            tuple(run[-1].digest for run in self._runs), self._gaps, digest, _signer(self._end, expected_key),
        )  # fmt: skip


def _digest_of(line: EventLine) -> str:
    return digest_of(line.subject, line.data.encode()) if isinstance(line, Recorded) else line.digest


def _bundled(line: EventLine, *, in_seal: bool) -> BundledEvent:
    if isinstance(line, Withheld):
        return BundledEvent(line.at, 0, None, line.type, WITHHELD, in_seal)
    try:
        event = decode(line.data.encode(), registry)
        subject = nats_subject_of(event)
    except (EventError, UnicodeEncodeError) as error:
        raise BundleError(f"The event {line.at} cannot be read: {error}", "It may need a newer build") from error
    if isinstance(line, Redacted):
        return BundledEvent(line.at, line.recorded_ns, event, event.type, REDACTED, in_seal)
    if not stands_under(event, line.subject):
        raise BundleError(f"The event {line.at} stands under {line.subject!r}, not {subject!r}", DAMAGED)
    return BundledEvent(line.at, line.recorded_ns, event, event.type, SEALED if in_seal else UNSEALED, in_seal)


def _signer(end: End, expected_key: str | None) -> Signer | None:
    if end.key is None or end.signature is None:
        if end.key or end.signature:
            raise BundleError("The bundle's signature lacks its key, or the key its signature", DAMAGED)
        if expected_key is not None:
            raise BundleError("The bundle is not signed", "Ask for one that is, or leave out --public-key")
        return None
    if not is_signed(end.digest, end.key, end.signature):
        raise BundleError("The bundle's signature is not one of the key that it names", DAMAGED)
    if expected_key not in (None, end.key):
        raise BundleError(f"The bundle is signed with another key: {end.key}", "Ask who made it for their public key")
    return Signer(end.key, expected_key is not None)


def _broken(line: Segment | Seal, why: str) -> BundleError:
    return BundleError(f"The messages {line.first} to {line.last} do not fit their seal: {why}", DAMAGED)
