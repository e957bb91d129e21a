"""The cache of the API server's objects, whatever order answers, events and lists come in, and when states end."""

from typing import Any

import pytest

from gpuledger.edge.kube.reflector import Changed
from gpuledger.edge.statuswriter.cache.objects import HOUR_S, Drift, KindCache, ObjectState, read
from gpuledger.edge.statuswriter.fields import observe
from gpuledger.edge.statuswriter.objects import Document, Kind, ObservedObject
from support.statuswriter_parts import obj

NOW_S = 10_000.0


def change(kind: Any, found: Document) -> Changed[Any]:
    return Changed(kind, read(Kind.DEVICE, found))


def seen(version: str, uid: str = "u", **more: Any) -> ObservedObject:
    return observe(Kind.DEVICE, obj(version, uid, **more))


def objects(cache: KindCache) -> dict[str, ObservedObject]:
    return {name: state.observed for name, state in cache.states.items() if state.observed is not None}


def test_the_echo_of_an_earlier_write_is_ignored() -> None:
    cache = KindCache()
    cache.written("w1-0", seen("7", status={"state": "Ready"}))
    step = cache.changed(change("MODIFIED", obj("6", status={})))
    assert step.before is step.after
    assert objects(cache)["w1-0"].version == "7"
    assert cache.changed(change("MODIFIED", obj("8"))).after == seen("8")


def test_an_answer_after_the_deletion_brings_nothing_back() -> None:
    cache = KindCache()
    cache.listed([read(Kind.DEVICE, obj("5"))], "5", NOW_S)
    cache.changed(change("DELETED", obj("9")))
    cache.written("w1-0", seen("8"))
    assert objects(cache) == {}
    cache.written("w1-0", seen("10", "other"))
    cache.changed(change("DELETED", obj("9")))
    assert objects(cache)["w1-0"].uid == "other"


def test_a_list_does_not_revert_what_was_written_after_it() -> None:
    cache = KindCache()
    cache.written("w1-0", seen("12"))
    cache.listed([], "10", NOW_S)
    assert list(objects(cache)) == ["w1-0"]
    cache.listed([], "12", NOW_S)
    assert objects(cache) == {}


def test_after_an_outage_a_list_is_all_there_is() -> None:
    cache = KindCache()
    cache.written("w1-0", seen("5000"))
    cache.interrupted()
    cache.listed([], "1001", NOW_S)
    assert objects(cache) == {}


def test_a_state_ends_with_its_object_unless_something_is_left_to_do() -> None:
    cache = KindCache()
    cache.listed([read(Kind.DEVICE, obj("5"))], "5", NOW_S)
    cache.forget_idle("w1-0", NOW_S)
    assert list(cache.states) == ["w1-0"]
    cache.state("w1-0").failures = 1
    cache.listed([], "6", NOW_S)
    assert list(cache.states) == ["w1-0"]
    cache.state("w1-0").failures = 0
    cache.forget_idle("w1-0", NOW_S)
    assert cache.states == {}


@pytest.mark.parametrize(
    "left",
    [
        ObjectState(lag_since_ns=1),
        ObjectState(writing_since_ns=1),
        ObjectState(drift=Drift("kubectl-edit")),
        ObjectState(is_paced=True),
        ObjectState(corrected_at_s=(NOW_S - HOUR_S + 1,)),
        ObjectState(writable_at_s=NOW_S + 1),
    ],
)
def test_a_state_with_something_to_remember_is_not_idle(left: ObjectState) -> None:
    assert not left.is_idle(NOW_S)
    left.writing_since_ns = None
    left.stop_work()
    assert left.is_idle(NOW_S + HOUR_S)
