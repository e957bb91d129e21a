"""The partitions of a ledger: which one an event is in, what their streams are called, and how their order is written.

Pure. A ledger of one partition is one stream. With several, each partition has a stream of its own, and the stream of
the generation holds their order: each of its messages says up to which of its own messages each partition is in the
log. An event's place in the log is its number in that order, so readers see one log with plain integers, as with one
partition.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import orjson

from gpuledger.events.subjects import ALL, NAMES_KEPT_MAX, ROOT
from gpuledger.ledger.errors import LogCutError

PART_ROOT: Final = "part"
"""The first token of the subjects by which events are published into partitions; what is stored begins as ever."""

ORDER_ROOT: Final = "order"
"""The first token of the subject of the order."""

ANY_PART: Final = f"{PART_ROOT}.*."
"""What matches the beginning of subjects of every partition."""

_COUNT: Final = "gpuledger.io/partitions"
"""In the metadata of a generation's stream: how many partitions there are."""

_NUMBER: Final = "gpuledger.io/partition"
"""In the metadata of a partition's stream: which one it is, counted from 0."""

_BEFORE: Final = "gpuledger.io/partitions-before"
"""In the metadata of the streams of a generation behind a closed one: how many messages each partition had by then."""

Upto = tuple[int, ...]
"""By partition: how many of its messages are in the log."""


def partition_stream(stream: str, partition: int, partitions: int) -> str:
    """`LEDGER_<generation>_P<partition>OF<partitions>`, given the generation's stream: it names how many there are."""
    return f"{stream}_P{partition}OF{partitions}"


def partition_streams(stream: str, partitions: int) -> list[str]:
    """The streams of all partitions, in their order."""
    return [partition_stream(stream, partition, partitions) for partition in range(partitions)]


def counted_partitions(stream: str, name: str) -> int:
    """How many partitions the name of a partition's stream says there are; 0 where it is not one of the generation."""
    match = re.fullmatch(rf"{stream}_P([0-9]+)OF([0-9]+)", name)
    return int(match[2]) if match else 0


def in_partition(subject: str, partition: int, partitions: int) -> str:
    """The subject by which a message is published into a partition, given the one that it is stored with."""
    return subject if partitions == 1 else f"{prefix_of(partition)}{subject}"


def order_subject(generation: int) -> str:
    """The subject of the order of a generation."""
    return f"{ORDER_ROOT}.{generation}"


def prefix_of(partition: int) -> str:
    """What the subjects begin with that are published into a partition."""
    return f"{PART_ROOT}.{partition}."


def subjects_taken(generation: int, partitions: int) -> list[str]:
    """The subjects that the stream of a generation takes while it is written to."""
    return [ALL] if partitions == 1 else [order_subject(generation)]


def partitions_of(metadata: Mapping[str, str] | None) -> int:
    """How many partitions the metadata of a generation's stream name."""
    return int((metadata or {}).get(_COUNT, "1"))


def count_metadata(partitions: int) -> dict[str, str]:
    """The metadata of a generation's stream that name them; none for one partition."""
    return {_COUNT: str(partitions)} if partitions > 1 else {}


def number_metadata(partition: int) -> dict[str, str]:
    """The metadata of a partition's stream."""
    return {_NUMBER: str(partition)}


def before_metadata(before: Upto) -> dict[str, str]:
    """The metadata of the streams of a generation whose partitions go on behind so many messages."""
    return {_BEFORE: written(before).decode()} if any(before) else {}


def before_of(metadata: Mapping[str, str] | None) -> Upto:
    """How many messages each partition had before the generation whose order's metadata these are."""
    nothing = (0,) * partitions_of(metadata)
    return _before(metadata) or nothing


def stream_behind(metadata: Mapping[str, str] | None) -> int | None:
    """Behind which of its own numbers a stream of several partitions begins; None: it is the one stream of its log."""
    given = metadata or {}
    if _NUMBER in given:
        before = _before(given)
        return before[int(given[_NUMBER])] if before else 0
    return 0 if _COUNT in given else None


def _before(metadata: Mapping[str, str] | None) -> Upto:
    return tuple(orjson.loads((metadata or {}).get(_BEFORE, "[]")))


def partition_of(subject: str, partitions: int) -> int:
    """The partition of the events under a subject: by its origin, so that what one source writes is in one of them."""
    return _partition(".".join(subject.split(".", 3)[1:3]), partitions)


@lru_cache(maxsize=NAMES_KEPT_MAX)
def _partition(origin: str, partitions: int) -> int:
    digest = hashlib.blake2b(origin.encode(errors="surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest) % partitions


def partitions_matched(subject_filter: str, partitions: int) -> Sequence[int]:
    """The partitions that can hold what a filter matches: one, where the filter names an origin, else all."""
    tokens = subject_filter.split(".")
    origin = tokens[1:3]
    if tokens[0] == ROOT and len(origin) == 2 and not {"*", ">"} & set(origin):
        return (partition_of(subject_filter, partitions),)
    return range(partitions)


def written(upto: Upto) -> bytes:
    """A message of the order."""
    return orjson.dumps(upto)


def parse_upto(data: bytes, partitions: int) -> Upto | None:
    """What a message of the order says; None where it is none, such as an answer that somebody had sent there."""
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    is_upto = isinstance(found, list) and len(found) == partitions
    return tuple(found) if is_upto and all(type(one) is int and one >= 0 for one in found) else None


def read_upto(data: bytes, before: Upto) -> Upto:
    """What is in the log behind a message of the order, given what was before it.

    Raises:
        LogCutError: it takes something back.
    """
    found = parse_upto(data, len(before)) or before
    if together(found, before) != found:
        raise LogCutError(f"the order of its partitions goes back from {before} to {found}")
    return found


def is_in_log(data: bytes, partition: int, partitions: int, number: int) -> bool:
    """Whether a message of a partition is in the log as of a message of the order."""
    return (parse_upto(data, partitions) or (0,) * partitions)[partition] >= number


class Block(NamedTuple):
    """Messages of one partition that follow each other in the log: those up to its message `upto`.

    Such a message's place in the log is its number in the partition and `shift`.
    """

    partition: int
    upto: int
    shift: int


def blocks_between(before: Upto, after: Upto) -> list[Block]:
    """What a message of the order appends to the log, which had `before`: partition by partition."""
    blocks, total = [], sum(before)
    for partition, (then, now) in enumerate(zip(before, after, strict=True)):
        if now > then:
            total += now - then
            blocks.append(Block(partition, now, total - now))
    return blocks


def steps_of(before: Upto, partitions: Iterable[int]) -> list[Upto]:
    """The messages of the order that append to the log, which had `before`, one message after the other.

    `partitions` are theirs, in the order of the log. One message of the order appends partition by partition, so it
    takes as many of them as come in that sequence.
    """
    steps: list[Upto] = []
    upto, last = list(before), -1
    for partition in partitions:
        if partition < last:
            steps.append(tuple(upto))
        upto[partition] += 1
        last = partition
    return steps if last < 0 else [*steps, tuple(upto)]


def counts_at(before: Upto, after: Upto, place: int) -> Upto:
    """How many messages of each partition are in the log up to a place, which is among those between the two."""
    counts, left = [], place - sum(before)
    for then, now in zip(before, after, strict=True):
        taken = max(0, min(now - then, left))
        counts.append(then + taken)
        left -= taken
    return tuple(counts)


def is_behind(before: Upto, after: Upto) -> bool:
    """Whether `after` has something that `before` has not."""
    return any(now > then for then, now in zip(before, after, strict=True))


def together(one: Upto, other: Upto) -> Upto:
    """What either has."""
    return tuple(map(max, one, other))


def changed_at(before: Upto, after: Upto, place: int) -> tuple[int, int] | None:
    """The partition and the number there of the message at a place among those between the two; None for none."""
    if not sum(before) < place <= sum(after):
        return None
    pairs = zip(counts_at(before, after, place - 1), counts_at(before, after, place), strict=True)
    return next((partition, now) for partition, (then, now) in enumerate(pairs) if now > then)
