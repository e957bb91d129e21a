"""The order of a log of several partitions, as arithmetic: whatever the steps and the pieces, it is one log."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.ledger.api import Message
from gpuledger.ledger.errors import LogCutError
from gpuledger.ledger.memory import matcher
from gpuledger.ledger.merge import Merge
from gpuledger.ledger.partitions import (
    Upto,
    blocks_between,
    changed_at,
    counts_at,
    parse_upto,
    partition_of,
    partitions_matched,
    read_upto,
    together,
    written,
)

PARTITIONS = 3
STEPS = st.lists(st.tuples(*[st.integers(0, 4)] * PARTITIONS), max_size=8)
FILTERS = ("ledger.>", "ledger.*.*.even.>", "ledger.*.*.none.>")


def order_of(steps: Sequence[Upto]) -> list[Upto]:
    """The messages of an order, with nothing before the first."""
    order: list[Upto] = [(0,) * PARTITIONS]
    for step in steps:
        order.append(tuple(map(sum, zip(order[-1], step, strict=True))))
    return order


def stored(partition: int, number: int) -> Message:
    kind = "even" if number % 2 == 0 else "odd"
    return Message(f"ledger.node.p{partition}.{kind}.x.y", b"%d/%d" % (partition, number), number, number)


def log_of(order: Sequence[Upto]) -> list[Message]:
    """The log, spelled out: step by step and partition by partition."""
    log: list[Message] = []
    for before, after in pairwise(order):
        for partition, (then, now) in enumerate(zip(before, after, strict=True)):
            for number in range(then + 1, now + 1):
                log.append(stored(partition, number)._replace(sequence=len(log) + 1))
    return log


@given(steps=STEPS, data=st.data())
def test_messages_come_out_in_the_order_however_they_come_in(steps: list[Upto], data: st.DataObject) -> None:
    order = order_of(steps)
    log = log_of(order)
    after = data.draw(st.integers(0, len(log)))
    matches = matcher(data.draw(st.sampled_from(FILTERS)))
    at = next((n for n, upto in enumerate(order) if sum(upto) > after), len(order)) - 1
    counts = counts_at(order[at], order[min(at + 1, len(order) - 1)], after)
    merge, taken = Merge(order[at], counts), list[Message]()
    # What may come next: a step of the order, or the next messages of a partition.
    waiting = [
        [n for n in range(counts[p] + 1, order[-1][p] + 1) if matches(stored(p, n).subject)] for p in range(PARTITIONS)
    ]
    steps_left = order[at + 1 :]
    for turn in data.draw(st.lists(st.integers(-1, PARTITIONS - 1), max_size=30)):
        if turn < 0 and steps_left:
            merge.order(steps_left.pop(0))
        elif turn >= 0 and waiting[turn]:
            merge.add(turn, [stored(turn, waiting[turn].pop(0))])
        taken += merge.take(data.draw(st.integers(1, 5)))
    for upto in steps_left:
        merge.order(upto)
    for partition, numbers in enumerate(waiting):
        if numbers:
            merge.add(partition, [stored(partition, number) for number in numbers])
        merge.complete(partition, order[-1][partition])
    while batch := merge.take(4):
        taken += batch
    expected = [(one.subject, one.data, one.sequence) for one in log[after:] if matches(one.subject)]
    assert [(one.subject, one.data, one.sequence) for one in taken] == expected


@given(steps=STEPS)
def test_each_place_has_its_message(steps: list[Upto]) -> None:
    order = order_of(steps)
    for before, after in pairwise(order):
        for place in range(sum(before) + 1, sum(after) + 1):
            found = changed_at(before, after, place)
            assert found is not None
            partition, number = found
            assert log_of(order)[place - 1].data == b"%d/%d" % (partition, number)
            block = next(one for one in blocks_between(before, after) if one.partition == partition)
            assert number + block.shift == place
        assert changed_at(before, after, sum(before)) is None
        assert changed_at(before, after, sum(after) + 1) is None


@given(upto=st.tuples(*[st.integers(0, 2**62)] * PARTITIONS))
def test_a_message_of_the_order_says_what_was_written(upto: Upto) -> None:
    assert parse_upto(written(upto), PARTITIONS) == upto == read_upto(written(upto), (0, 0, 0))


@pytest.mark.parametrize("data", [b"", b"{", b"[1,2]", b"[1,2,3,4]", b"[1,2,-3]", b'[1,2,"3"]', b"[1,2,true]", b"{}"])
def test_what_is_no_message_of_the_order_says_nothing(data: bytes) -> None:
    assert read_upto(data, (1, 2, 3)) == (1, 2, 3)


def test_an_order_that_takes_something_back_is_an_error() -> None:
    with pytest.raises(LogCutError, match="goes back"):
        read_upto(b"[5,2,2]", (1, 2, 3))


def test_a_node_is_in_one_partition_whatever_it_records() -> None:
    assert {partition_of(f"ledger.node.n1.{rest}", 4) for rest in ("device.d.seen", "pod.p.ended", ">")} == {
        partition_of("ledger.node.n1.>", 4)
    }
    assert partition_of("ledger.node.n1.device.d.seen", 1) == 0
    spread = [partition_of(f"ledger.node.gpu-{number:04}.device.d.seen", 4) for number in range(4000)]
    assert all(900 < spread.count(partition) < 1100 for partition in range(4))


def test_partitions_never_move() -> None:
    """What is recorded stays where it is, so the numbers of today hold for ever."""
    named = ("ledger.node.n1.>", "ledger.node.gpu-01%2Eexample.>", "ledger.svc.pools.>", "ledger.svc.import.>")
    assert [partition_of(one, 4) for one in named] == PLACES


PLACES = [0, 0, 3, 3]


@pytest.mark.parametrize(
    ("subject_filter", "all_of_them"),
    [("ledger.>", True), (">", True), ("ledger.node.*.device.>", True), ("ledger.node.n1.>", False)],
)
def test_a_filter_that_names_an_origin_is_asked_of_one_partition(subject_filter: str, *, all_of_them: bool) -> None:
    matched = partitions_matched(subject_filter, 4)
    assert list(matched) == ([0, 1, 2, 3] if all_of_them else [partition_of(subject_filter, 4)])


def test_together_has_what_either_has() -> None:
    assert together((1, 5, 0), (2, 3, 0)) == (2, 5, 0)
