"""The registry: a rule who publishes each type, and a chain of upcasters without holes."""

from typing import Any

import pytest

from gpuledger.events.errors import CatalogueError, PayloadError, UnknownEventTypeError
from gpuledger.events.payload import Count, Name, Payload
from gpuledger.events.publishing import Authority, PublishRule, SourceKind
from gpuledger.events.registry import Registry, TypeName, parse_type

FANS = PublishRule((SourceKind.IMPORTERS,), Authority.EDGE)
TYPE = "io.gpuledger.fan.turned.v{}"


def grown() -> Registry:
    """A type in its third version: `rpm` was `speed`, and `rotor` came last."""
    registry = Registry()

    @registry.event("fan", "turned", FANS, version=3)
    class FanTurned(Payload):
        rpm: Count
        rotor: Name

    @registry.upcaster("fan", "turned", version=1)
    def _rename(data: dict[str, Any]) -> dict[str, Any]:
        return {"rpm": data["speed"]}

    @registry.upcaster("fan", "turned", version=2)
    def _add_rotor(data: dict[str, Any]) -> dict[str, Any]:
        return {**data, "rotor": "main"}

    return registry


@pytest.mark.parametrize(
    ("version", "data"),
    [(1, {"speed": 900}), (2, {"rpm": 900}), (3, {"rpm": 900, "rotor": "main"})],
)
def test_every_version_reads_as_the_newest(version: int, data: dict[str, object]) -> None:
    registry = grown()
    registry.check()
    payload = registry.decode(TYPE.format(version), data)
    assert payload.model_dump() == {"rpm": 900, "rotor": "main"}
    assert registry.knows(payload.TYPE)
    assert payload.VERSION == 3


def test_upcasting_leaves_the_recorded_data_alone() -> None:
    data = {"rpm": 900}
    grown().decode(TYPE.format(2), data)
    assert data == {"rpm": 900}


def test_a_version_from_the_future_suggests_an_upgrade() -> None:
    registry = grown()
    with pytest.raises(UnknownEventTypeError, match="upgrade the services"):
        registry.decode(TYPE.format(4), {})
    assert not registry.knows(TYPE.format(4))
    assert registry.knows(TYPE.format(1))


@pytest.mark.parametrize(
    "event_type",
    ["", "fan.turned", "io.gpuledger.fan.turned", "io.gpuledger.fan.turned.v01", "io.gpuledger.Fan.turned.v1"],
)
def test_a_type_of_another_form_is_unknown(event_type: str) -> None:
    with pytest.raises(UnknownEventTypeError):
        grown().decode(event_type, {})
    assert not grown().knows(event_type)


@pytest.mark.parametrize("data", [{}, {"speed": "fast"}, {"speed": -1}, [], None, 5])
def test_older_data_that_does_not_fit_is_a_payload_error(data: object) -> None:
    with pytest.raises(PayloadError):
        grown().decode(TYPE.format(1), data)


def test_an_event_registered_twice_is_refused() -> None:
    registry = grown()
    with pytest.raises(CatalogueError, match="twice"):

        @registry.event("fan", "turned", FANS)
        class Again(Payload):
            pass


def test_an_upcaster_registered_twice_is_refused() -> None:
    registry = grown()
    with pytest.raises(CatalogueError, match="two upcasters"):
        registry.upcaster("fan", "turned", version=1)(dict)


@pytest.mark.parametrize(("aggregate", "event"), [("Fan", "turned"), ("fan", "turned.round"), ("", "turned")])
def test_a_name_that_is_not_a_word_is_refused(aggregate: str, event: str) -> None:
    with pytest.raises(CatalogueError, match="lower-case"):

        @Registry().event(aggregate, event, FANS)
        class Odd(Payload):
            pass


def test_a_hole_in_the_chain_is_found_before_an_event_falls_into_it() -> None:
    registry = Registry()

    @registry.event("fan", "turned", FANS, version=3)
    class FanTurned(Payload):
        pass

    registry.upcaster("fan", "turned", version=2)(dict)
    with pytest.raises(CatalogueError, match=r"fan\.turned\.v1 has no upcaster"):
        registry.check()


def test_a_type_name_is_its_parts() -> None:
    name = parse_type("io.gpuledger.gap-watch.gap-detected.v12")
    assert name == TypeName("gap-watch", "gap-detected", 12)
    assert str(name) == "io.gpuledger.gap-watch.gap-detected.v12"
