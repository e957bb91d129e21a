"""What a node's row keeps of its looks, against a count over all of them."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gpuledger.domain.bootstrap.facts import BootstrapNode
from gpuledger.domain.bootstrap.observations import heartbeat_times, unbroken_heartbeats
from gpuledger.events.settings import HEARTBEATS_MAX
from support.bootstrap import NODE, Prepared, heartbeat, second
from support.thoroughness import examples

Heartbeats = list[tuple[int, bool]]
heartbeats = st.lists(st.sampled_from([True, True, True, False]), min_size=1, max_size=50).map(
    lambda freshness: list(enumerate(freshness, 1))
)


def row_after(looks: Heartbeats) -> BootstrapNode:
    node = Prepared()
    for at, fresh in looks:
        node.record(at, NODE, heartbeat(fresh=fresh))
    return node.state.node.rows[NODE]


def begins(looks: Heartbeats, length: int) -> int | None:
    """When the last so many looks began that were fresh in a row."""
    lost = [0, *(at for at, fresh in looks if not fresh), len(looks) + 1]
    return max((end - length for start, end in pairwise(lost) if end - start > length), default=None)


@examples(3)
@given(looks=heartbeats)
def test_a_row_has_the_beginning_of_the_last_heartbeats_of_every_count(looks: Heartbeats) -> None:
    expected = [begins(looks, length) for length in range(HEARTBEATS_MAX, 0, -1)]
    assert heartbeat_times(row_after(looks)) == [second(at) for at in expected if at is not None]


@examples(3)
@given(looks=heartbeats, data=st.data())
def test_what_counts_now_does_not_depend_on_the_order_of_heartbeats(looks: Heartbeats, data: st.DataObject) -> None:
    in_time, mixed = row_after(looks), row_after(data.draw(st.permutations(looks)))
    assert (unbroken_heartbeats(mixed), mixed.stale_at) == (unbroken_heartbeats(in_time), in_time.stale_at)


@examples(3)
@given(looks=heartbeats, data=st.data())
def test_a_late_loss_never_makes_a_longer_run(looks: Heartbeats, data: st.DataObject) -> None:
    """A loss later than every other is recorded after all fresh heartbeats; the row then never claims too much."""
    lost = [at for at, fresh in looks if not fresh]
    late = [*(one for one in looks if one[0] not in lost[-1:]), *((at, False) for at in lost[-1:])]
    current, right = heartbeat_times(row_after(late)), heartbeat_times(row_after(looks))
    assert len(current) <= len(right)
    assert all(one <= other for one, other in zip(reversed(current), reversed(right), strict=False))
