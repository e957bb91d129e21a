"""What a change costs, counted: it depends on what it touches and not on the size of the cluster."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gpuledger.domain.dra import evaluation, pools
from gpuledger.events.claim import ClaimReleased
from gpuledger.events.slice import SliceWithdrawn, TaintRuleSet
from support.dra import ANYWHERE, RecordedSlices, counters, device, given, on, partition, published, result, taint

DEVICES = tuple(device(f"gpu-{number}") for number in range(8))

Work = Counter[str]


@contextmanager
def counted(patch: pytest.MonkeyPatch) -> Iterator[Work]:
    """How many devices were looked at, and how many views were seen."""
    work = Work()

    def counting(module: Any, name: str, what: str) -> None:
        real = getattr(module, name)

        def call(*args: Any) -> Any:
            work[what] += 1
            return real(*args)

        patch.setattr(module, name, call)

    with patch.context() as patch:  # noqa: PLR1704
        counting(evaluation, "blockers", "verdicts")
        counting(pools, "_view", "views")
        yield work


def cluster(size: int) -> RecordedSlices:
    """So many pools of eight devices, each with a claim and a taint rule of its own."""
    recorded = RecordedSlices()
    for number in range(size):
        name = f"n{number}"
        recorded.record((f"s-{name}", published(*DEVICES, pool=name)), (f"ns/{name}", given(result("gpu-0", name))))
        recorded.record((f"r-{name}", TaintRuleSet(uid="u", taint=taint(), pool=name, device="gpu-7")))
    recorded.state.take_touched()
    return recorded


@pytest.mark.parametrize("size", [10, 1000])
def test_a_claim_is_evaluated_where_it_is_whatever_the_cluster(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = cluster(size)
    with counted(monkeypatch) as work:
        recorded.record(("ns/new", given(result("gpu-1", "n3"))))
        assert (work, recorded.state.take_touched()) == ({"verdicts": 1}, ["s-n3"])
        recorded.record(("ns/new", ClaimReleased()))
        assert (work, recorded.state.take_touched()) == ({"verdicts": 2}, ["s-n3"])
        recorded.record(("r-n3", TaintRuleSet(uid="u", taint=taint(), pool="n3")))
        assert (work["verdicts"], work["views"], recorded.state.take_touched()) == (10, 1, ["s-n3"])


def test_slices_of_a_pool_are_not_evaluated_again_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each once when it comes, and once when the last one completes the pool: not all of them with each that comes."""
    size, recorded = 40, RecordedSlices()
    with counted(monkeypatch) as work:
        for number in range(size):
            recorded.record((f"s{number}", published(device(f"gpu-{number}"), count=size, reach=ANYWHERE)))
        assert work["verdicts"] == (size - 1) + size
        recorded.state.take_touched()
        recorded.record(("s7", published(device("gpu-7"), count=size, reach=ANYWHERE, generation=2)))
        assert work["verdicts"] == (size - 1) + size + 1
        assert sorted(recorded.state.take_touched()) == ["s0", "s7"]


def test_nodes_that_share_a_pool_are_not_evaluated_again_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    size, recorded = 40, RecordedSlices()
    with counted(monkeypatch) as work:
        for number in range(size):
            name = f"n{number}"
            recorded.record((name, published(device(f"gpu-{number}"), pool="p", reach=on(name))))
        assert work == {"verdicts": size, "views": size}
        recorded.state.take_touched()
        recorded.record(("ns/c", given(result("gpu-7", "p"))))
        assert (work, recorded.state.take_touched()) == ({"verdicts": size + 1, "views": size}, ["n7"])


def test_only_devices_that_draw_from_the_same_counters_are_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = [f"gpu-{number}" for number in range(8)]
    parts = [partition(f"{gpu}-{half}", gpu, m="2") for gpu in gpus for half in (0, 1)]
    whole = [partition(gpu, gpu, m="4") for gpu in gpus]
    recorded = RecordedSlices(
        ("a", published(*parts, *whole, count=2)),
        ("b", published(count=2, counter_sets=tuple(counters(gpu, m="4") for gpu in gpus))),
    )
    with counted(monkeypatch) as work:
        recorded.record(("ns/c", given(result("gpu-3-0"))))
        assert work == {"verdicts": 2}
    assert recorded.states("a")["gpu-3"] == "Unavailable/InsufficientSharedCapacity"


def test_changes_are_not_noted_before_the_first_query_for_them() -> None:
    recorded = RecordedSlices()
    vars(recorded.state)["_touched"] = None
    recorded.record(("a", published()), ("b", published()), ("b", SliceWithdrawn()))
    assert vars(recorded.state)["_touched"] is None
    assert recorded.state.take_touched() == ["a"]
    assert recorded.record(("a", SliceWithdrawn())).state.take_touched() == ["a"]
