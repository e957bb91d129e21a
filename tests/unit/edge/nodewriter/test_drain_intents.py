"""When drains of nodes began, as the ledger has it."""

from datetime import datetime
from typing import Any

from gpuledger.domain.fact import Fact, ns_of_time
from gpuledger.edge.nodewriter.drain_intents import DRAIN_HANDLERS, DrainIntents
from gpuledger.events.envelope import Event
from gpuledger.events.maintenance import (
    NodeDrainChanged,
    NodeDrainFinished,
    NodeDrainProgressed,
    NodeDrainTimedOut,
)
from gpuledger.events.payload import Payload
from gpuledger.events.position import ORIGIN
from support.remediation import at


def owned(owner: str, since_s: float = 0) -> dict[str, Any]:
    return {"owner": owner, "since": at(since_s), "drain": {}}


class DrainLog:
    """Events about the drain of a node, folded as they come."""

    def __init__(self) -> None:
        self.state = DrainIntents()
        self._events = 0

    def add(self, data: Payload, at_s: float, *, imported: bool = False) -> str:
        """Fold an event of that second; returns its id."""
        self._events += 1
        number = self._events
        event = Event(f"e{number}", "/services/x", data.TYPE, "n1", at(at_s), data, "e", number, imported=imported)
        DRAIN_HANDLERS[type(data)](self.state, Fact(event, ORIGIN, ns_of_time(at(at_s))), data)
        return event.id

    def decide(self, at_s: float, *owners: dict[str, Any]) -> str:
        """The drains of these owners are in force; returns the intent."""
        return self.add(NodeDrainChanged.model_validate({"uid": "u", "drains": owners}), at_s)

    @property
    def begun(self) -> dict[str, datetime]:
        """When the drains of the newest intent began."""
        newest = self.state.newest.get("n1")
        assert newest is not None
        return newest.begun_at


def test_a_drain_begins_with_its_first_report() -> None:
    log = DrainLog()
    intent = log.decide(10, owned("a"))
    assert log.begun == {}
    log.add(NodeDrainProgressed(intent="another", left=1), 11)
    log.add(NodeDrainProgressed(intent=intent, left=1), 12, imported=True)
    assert log.begun == {}
    log.add(NodeDrainTimedOut(intent=intent, left=1), 20)
    log.add(NodeDrainProgressed(intent=intent, left=1), 30)
    assert log.begun == {"a": at(20)}


def test_another_owner_that_joins_changes_nothing_about_when_the_first_one_began() -> None:
    log = DrainLog()
    first = log.decide(10, owned("a"))
    log.add(NodeDrainProgressed(intent=first, left=1), 20)
    second = log.decide(30, owned("a"), owned("b", 29))
    assert log.begun == {"a": at(20)}
    log.add(NodeDrainProgressed(intent=second, left=1), 31)
    assert log.begun == {"a": at(20), "b": at(31)}


def test_a_request_that_is_repeated_begins_anew() -> None:
    log = DrainLog()
    first = log.decide(10, owned("a"))
    log.add(NodeDrainProgressed(intent=first, left=1), 20)
    log.decide(30, owned("a", 30))
    assert log.begun == {}


def test_a_drain_after_one_that_is_over_begins_anew() -> None:
    log = DrainLog()
    first = log.decide(10, owned("a"))
    log.add(NodeDrainProgressed(intent=first, left=1), 20)
    log.add(NodeDrainFinished(intent=first), 30)
    log.decide(40, owned("a"))
    assert log.begun == {}
