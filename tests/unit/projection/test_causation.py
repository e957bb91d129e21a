"""How decisions name their cause, so that a replay gives them the same ids, and which time they get."""

from gpuledger.domain.fact import Fact
from gpuledger.events.device import DeviceFailed, DeviceRemoved
from gpuledger.events.ids import derived_id
from gpuledger.projection.definition import Causation
from support.events import event, hour

FAILED, REMOVED = DeviceFailed(kind="DBE"), DeviceRemoved(slot="s")


def fact(correlation_id: str | None = None) -> Fact:
    return Fact(event(FAILED, "d1", at=1)._replace(id="first", correlation_id=correlation_id), 1, 0)


def test_decisions_of_a_type_about_a_subject_follow_from_each_other() -> None:
    causation = Causation(fact())
    made = [
        causation.decision(subject, data) for subject, data in [("a", FAILED)] * 3 + [("a", REMOVED), ("b", FAILED)]
    ]
    second = derived_id("first", FAILED.TYPE, "a")
    third = derived_id(second, FAILED.TYPE, "a")
    assert [decision.cause for decision in made] == ["first", second, third, "first", "first"]
    assert len({derived_id(one.cause, one.data.TYPE, one.subject) for one in made}) == len(made)
    assert {decision.correlation_id for decision in made} == {"first"}


def test_a_chain_keeps_the_id_of_its_first_event() -> None:
    assert Causation(fact("origin")).decision("a", FAILED).correlation_id == "origin"


def test_no_decision_lies_before_its_fact_or_an_earlier_decision() -> None:
    assert Causation(fact(), not_before=hour(0)).time == hour(1)
    causation = Causation(fact(), not_before=hour(2))
    times = [causation.decision("a", FAILED, before).time for before in (None, hour(3), hour(0), None)]
    assert times == [hour(2), hour(3), hour(3), hour(3)]
