"""What the status writer knows of the API server's objects, whatever order answers, events and lists come in."""

from typing import Any

from gpuledger.edge.kube.reflector import Changed
from gpuledger.edge.statuswriter.cache.observed import Known, read
from gpuledger.edge.statuswriter.reconcile.decide import Actual, Document, Kind, actual_of
from support.statuswriter_parts import obj


def change(kind: Any, found: Document) -> Changed[Any]:
    return Changed(kind, read(Kind.DEVICE, found))


def actual(version: str, uid: str = "u", **more: Any) -> Actual:
    return actual_of(Kind.DEVICE, obj(version, uid, **more))


def test_the_echo_of_an_earlier_write_is_passed_over() -> None:
    known = Known()
    known.written("w1-0", actual("7", status={"state": "Ready"}))
    step = known.changed(change("MODIFIED", obj("6", status={})))
    assert step.before is step.after
    assert known.objects["w1-0"].version == "7"
    assert known.changed(change("MODIFIED", obj("8"))).after == actual("8")


def test_an_answer_after_the_deletion_brings_nothing_back() -> None:
    known = Known()
    known.listed([read(Kind.DEVICE, obj("5"))], "5")
    known.changed(change("DELETED", obj("9")))
    known.written("w1-0", actual("8"))
    assert known.objects == {}
    known.written("w1-0", actual("10", "other"))
    known.changed(change("DELETED", obj("9")))
    assert known.objects["w1-0"].uid == "other"


def test_a_list_does_not_undo_what_was_written_after_it() -> None:
    known = Known()
    known.written("w1-0", actual("12"))
    known.listed([], "10")
    assert list(known.objects) == ["w1-0"]
    known.listed([], "12")
    assert known.objects == {}


def test_after_an_outage_a_list_is_all_there_is() -> None:
    known = Known()
    known.written("w1-0", actual("5000"))
    known.interrupted()
    known.listed([], "1001")
    assert known.objects == {}
