"""One partition and several give the same tables, whatever the pieces in which partitions come into the log.

Columns that hold places of the log, such as `first_position`, are left out: an event stands elsewhere in another order.
"""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.ledger.api import Message
from gpuledger.ledger.merge import Merge
from gpuledger.ledger.partitions import counts_at, partition_of, steps_of
from gpuledger.projection.definition import Projection
from gpuledger.readmodels.projections import (
    AllocationsProjection,
    DevicesProjection,
    IncidentsProjection,
    NodesProjection,
    PreflightProjection,
    SharesProjection,
    WorkloadsProjection,
)
from support.events import RecordedFact, facts, folded, log_of, numbered, rows_of
from support.preflight_results import preflights
from support.sharing import sharings
from support.thoroughness import examples

READ_MODELS = [
    DevicesProjection(),
    NodesProjection(),
    WorkloadsProjection(),
    AllocationsProjection(),
    IncidentsProjection(),
    PreflightProjection(),
    SharesProjection(),
]
PARTITIONS = st.integers(2, 5)


def partitioned(log: Sequence[Message], partitions: int, data: st.DataObject) -> list[Message]:
    """The log as it comes out of several partitions, which are put in order in pieces of any size."""
    streams: list[list[Message]] = [[] for _ in range(partitions)]
    for message in log:
        stream = streams[partition_of(message.subject, partitions)]
        stream.append(message._replace(sequence=len(stream) + 1))
    merge = Merge((0,) * partitions, (0,) * partitions)
    for partition, stream in enumerate(streams):
        if stream:
            merge.add(partition, stream)
    whole = tuple(map(len, streams))
    while merge.upto != whole:
        merge.order(tuple(data.draw(st.integers(now, end)) for now, end in zip(merge.upto, whole, strict=True)))
    return merge.take(len(log) + 1)


@pytest.mark.parametrize("projection", READ_MODELS, ids=lambda model: model.name)
@examples(0.4)
@given(recorded=facts | preflights | sharings, partitions=PARTITIONS, data=st.data())
def test_the_same_events_give_the_same_tables(
    projection: Projection, recorded: list[RecordedFact], partitions: int, data: st.DataObject
) -> None:
    log = log_of(numbered(recorded))
    merged = partitioned(log, partitions, data)
    assert sorted(one.data for one in merged) == sorted(one.data for one in log)
    assert rows_of(folded(projection, merged), positions=False) == rows_of(folded(projection, log), positions=False)


@given(partitions=PARTITIONS.flatmap(lambda count: st.lists(st.integers(0, count - 1), max_size=40)), data=st.data())
def test_a_restored_order_puts_every_message_in_its_place(partitions: list[int], data: st.DataObject) -> None:
    """Wherever the log ends already; and each message of the order takes as many as it can."""
    before = tuple(data.draw(st.integers(0, 3)) for _ in range(5))
    steps = steps_of(before, partitions)
    found = []
    for then, now in zip([before, *steps], steps, strict=False):
        places = range(sum(then), sum(now) + 1)
        counts = [counts_at(then, now, place) for place in places]
        found += [tuple(b - a for a, b in zip(one, other, strict=True)).index(1) for one, other in pairwise(counts)]
    assert found == partitions
    assert len(steps) == (1 + sum(a > b for a, b in pairwise(partitions)) if partitions else 0)
