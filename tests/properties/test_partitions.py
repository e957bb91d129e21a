"""One partition and several give the same tables, whatever the pieces in which partitions come into the log.

Columns that hold places of the log, such as `first_position`, are left out: an event stands elsewhere in another order.
"""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.ledger.api import Message
from gpuledger.ledger.merge import Merge
from gpuledger.ledger.partitions import partition_of
from gpuledger.projection.definition import Projection
from gpuledger.readmodels.projections import (
    AllocationsProjection,
    DevicesProjection,
    NodesProjection,
    WorkloadsProjection,
)
from support.events import RecordedFact, facts, folded, log_of, numbered, rows_of
from support.thoroughness import examples

READ_MODELS = [DevicesProjection(), NodesProjection(), WorkloadsProjection(), AllocationsProjection()]
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
@given(recorded=facts, partitions=PARTITIONS, data=st.data())
def test_the_same_events_give_the_same_tables(
    projection: Projection, recorded: list[RecordedFact], partitions: int, data: st.DataObject
) -> None:
    log = log_of(numbered(recorded))
    merged = partitioned(log, partitions, data)
    assert sorted(one.data for one in merged) == sorted(one.data for one in log)
    assert rows_of(folded(projection, merged), positions=False) == rows_of(folded(projection, log), positions=False)
