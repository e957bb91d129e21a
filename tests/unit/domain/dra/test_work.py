"""What a change costs, counted: it depends on what it touches and not on the size of the cluster."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gpuledger.domain.dra import evaluation, pools
from gpuledger.events.claim import ClaimReleased
from gpuledger.events.slice import SliceWithdrawn, TaintRuleSet
from support.dra import ANYWHERE, Told, counters, device, given, on, partition, published, result, taint

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


def cluster(size: int) -> Told:
    """So many pools of eight devices, each with a claim and a taint rule of its own."""
    told = Told()
    for number in range(size):
        name = f"n{number}"
        told.say((f"s-{name}", published(*DEVICES, pool=name)), (f"ns/{name}", given(result("gpu-0", name))))
        told.say((f"r-{name}", TaintRuleSet(uid="u", taint=taint(), pool=name, device="gpu-7")))
    told.state.take_touched()
    return told


@pytest.mark.parametrize("size", [10, 1000])
def test_a_claim_is_looked_at_where_it_is_whatever_the_cluster(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    told = cluster(size)
    with counted(monkeypatch) as work:
        told.say(("ns/new", given(result("gpu-1", "n3"))))
        assert (work, told.state.take_touched()) == ({"verdicts": 1}, ["s-n3"])
        told.say(("ns/new", ClaimReleased()))
        assert (work, told.state.take_touched()) == ({"verdicts": 2}, ["s-n3"])
        told.say(("r-n3", TaintRuleSet(uid="u", taint=taint(), pool="n3")))
        assert (work["verdicts"], work["views"], told.state.take_touched()) == (10, 1, ["s-n3"])


def test_slices_of_a_pool_are_not_looked_at_again_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each once when it comes, and once when the last one completes the pool: not all of them with each that comes."""
    size, told = 40, Told()
    with counted(monkeypatch) as work:
        for number in range(size):
            told.say((f"s{number}", published(device(f"gpu-{number}"), count=size, reach=ANYWHERE)))
        assert work["verdicts"] == (size - 1) + size
        told.state.take_touched()
        told.say(("s7", published(device("gpu-7"), count=size, reach=ANYWHERE, generation=2)))
        assert work["verdicts"] == (size - 1) + size + 1
        assert sorted(told.state.take_touched()) == ["s0", "s7"]


def test_nodes_that_share_a_pool_are_not_looked_at_again_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    size, told = 40, Told()
    with counted(monkeypatch) as work:
        for number in range(size):
            name = f"n{number}"
            told.say((name, published(device(f"gpu-{number}"), pool="p", reach=on(name))))
        assert work == {"verdicts": size, "views": size}
        told.state.take_touched()
        told.say(("ns/c", given(result("gpu-7", "p"))))
        assert (work, told.state.take_touched()) == ({"verdicts": size + 1, "views": size}, ["n7"])


def test_only_those_that_draw_from_the_same_counters_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = [f"gpu-{number}" for number in range(8)]
    parts = [partition(f"{gpu}-{half}", gpu, m="2") for gpu in gpus for half in (0, 1)]
    whole = [partition(gpu, gpu, m="4") for gpu in gpus]
    told = Told(
        ("a", published(*parts, *whole, count=2)),
        ("b", published(count=2, counter_sets=tuple(counters(gpu, m="4") for gpu in gpus))),
    )
    with counted(monkeypatch) as work:
        told.say(("ns/c", given(result("gpu-3-0"))))
        assert work == {"verdicts": 2}
    assert told.states("a")["gpu-3"] == "Unavailable/InsufficientSharedCapacity"


def test_before_anybody_asks_nothing_is_noted_of_what_changes() -> None:
    told = Told()
    vars(told.state)["_touched"] = None
    told.say(("a", published()), ("b", published()), ("b", SliceWithdrawn()))
    assert vars(told.state)["_touched"] is None
    assert told.state.take_touched() == ["a"]
    assert told.say(("a", SliceWithdrawn())).state.take_touched() == ["a"]
