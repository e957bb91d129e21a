"""What holds for every set of slices: errors are found in any order, wherever they are, and stay within their pool."""

from collections import Counter
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from gpuledger.domain.dra.facts import slice_of
from gpuledger.domain.dra.objects import LabelledNode, PoolId, Slice
from gpuledger.domain.dra.pools import seen_everywhere, seen_from
from gpuledger.events.slice import SlicePublished
from support.dra import ANYWHERE, RecordedSlices, device, published
from support.dra_strategies import odd_slices, stories
from support.dra_strategies import slices as any_slices
from support.events import SubjectFact

NAMES = ("a", "b", "c", "d")
NODES = (LabelledNode("n1", {}), LabelledNode("n2", {"zone": "a"}))
NEW = "new"
"""A slice that no story has."""


class Announced(NamedTuple):
    """A slice of the one pool that all nodes reach: what it announces of the pool, and its devices."""

    name: str
    generation: int
    announced: int
    devices: tuple[str, ...]

    @property
    def fact(self) -> SubjectFact:
        """As a watcher records it."""
        devices = map(device, self.devices)
        return self.name, published(*devices, reach=ANYWHERE, pool_generation=self.generation, count=self.announced)


pools_announced = st.lists(
    st.builds(
        Announced,
        name=st.sampled_from(NAMES),
        generation=st.sampled_from([1, 2, 2, 2]),
        announced=st.sampled_from([1, 2, 2, 3, 3, 4]),
        devices=st.lists(st.sampled_from([f"gpu-{n}" for n in range(8)]), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=len(NAMES),
    unique_by=lambda one: one.name,
)


class Expected(NamedTuple):
    """What the enhancement proposal's checks amount to."""

    status: str
    has_errors: bool
    repeated: set[str]


def expected_of(pool: list[Announced]) -> Expected:
    """The checks, one after another as the proposal lists them."""
    newest = max(one.generation for one in pool)
    current = sorted(one for one in pool if one.generation == newest)
    names = Counter(name for one in current for name in one.devices)
    repeated = {name for name, times in names.items() if times > 1}
    is_mixed = len(current) < len(pool)
    counts = {one.announced for one in current}
    is_complete = len(current) == current[0].announced
    is_wrong = bool(repeated) or len(counts) > 1 or len(current) > max(counts) or (is_mixed and is_complete)
    status = "False" if is_wrong else "True" if is_complete else "Unknown"
    return Expected(status, is_wrong or is_mixed, repeated)


@given(pool=pools_announced)
def test_a_pool_is_valid_when_no_check_of_the_proposal_fails(pool: list[Announced]) -> None:
    recorded, expected = RecordedSlices(*(one.fact for one in pool)), expected_of(pool)
    (status,) = [one["poolStatus"] for one in recorded.statuses().values() if "poolStatus" in one]
    (valid,) = [one["status"] for one in status["conditions"] if one["type"] == "Valid"]
    errors = status.get("validationErrors", [])
    assert (valid, bool(errors)) == (expected.status, expected.has_errors)
    assert {name for name in expected.repeated if any(f"device {name} appears" in one for one in errors)} == (
        expected.repeated
    )
    assert sum(one.startswith("device ") for one in errors) == len(expected.repeated)


@given(pool=st.lists(any_slices, min_size=1, max_size=len(NAMES)), data=st.data())
def test_the_order_of_slices_does_not_matter(pool: list[SlicePublished], data: st.DataObject) -> None:
    slices = [slice_of(name, one) for name, one in zip(NAMES, pool, strict=False)]
    shuffled: list[Slice] = data.draw(st.permutations(slices))
    assert seen_everywhere(shuffled) == seen_everywhere(slices)
    for node in NODES:
        assert seen_from(shuffled, node) == seen_from(slices, node)


@given(pool=st.lists(any_slices, min_size=1, max_size=len(NAMES)))
def test_only_what_the_allocator_looks_for_keeps_devices_from_being_had(pool: list[SlicePublished]) -> None:
    slices = [slice_of(name, one) for name, one in zip(NAMES, pool, strict=False)]
    for view in (seen_everywhere(slices), *(seen_from(slices, node) for node in NODES)):
        assert view.gives is (view.on_node and view.is_complete and not view.problems)
        assert (view.is_consistent is True) is (view.is_complete and not view.errors)
        assert (view.is_consistent is None) <= (view.observed < view.expected)


@given(facts=stories, fault=odd_slices)
def test_a_fault_in_one_pool_changes_no_other(facts: list[SubjectFact], fault: SlicePublished) -> None:
    recorded, pool = RecordedSlices(*facts), PoolId(fault.driver, fault.pool)
    before = recorded.statuses()
    recorded.state.take_touched()
    after = recorded.record((NEW, fault)).statuses()
    pools = {row.name: PoolId(row.driver, row.pool) for row in recorded.state.slice.rows.values()}
    others = {name for name, one in pools.items() if one != pool}
    assert {name: after[name] for name in others} == {name: before[name] for name in others}
    assert not others & set(recorded.state.take_touched())
