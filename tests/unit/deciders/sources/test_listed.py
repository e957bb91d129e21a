"""What a source's events list counts towards its limits where `Rule.BOUNDS` is enforced: cards and units."""

from gpuledger.deciders.sources.projection import SourcesProjection
from gpuledger.domain.sources.limits import LIMITS, UNITS_PER_AGGREGATE
from gpuledger.events.allocation import UNITS_OF_CONTAINER_MAX, UNITS_OF_NODE_MAX, AllocatedDevices, AllocationObserved
from gpuledger.events.device import Card, DeviceFailed
from gpuledger.events.envelope import Decoded
from gpuledger.events.node import CARDS_PER_NODE_MAX, NodeDevicesObserved
from gpuledger.events.payload import Payload
from gpuledger.events.publishing import Rule
from gpuledger.events.rule import RuleEnforced
from gpuledger.events.source import SourceLimited
from gpuledger.projection.definition import Numbering
from gpuledger.projection.fold import Fold
from support.events import AGENT, GENERATION, event, log_of


def survey(*uuids: str | None) -> tuple[str, Payload]:
    cards = (
        Card(uuid=uuid, pci_address=f"0000:{place:02x}:00.0", pci_vendor="10de", pci_device="2335")
        for place, uuid in enumerate(uuids)
    )
    return "n1", NodeDevicesObserved(cards=tuple(cards))


def holds(container: str, units: int) -> tuple[str, Payload]:
    held = (AllocatedDevices(resource="r", devices=tuple(map(str, range(units)))),)
    data = AllocationObserved(node="n1", namespace="ns", pod="p", container=container, resources=held)
    return f"n1/ns/p/{container}", data


def fold_of(*facts: tuple[str, Payload], bounded: bool = True) -> Fold:
    """A fold of an agent's facts behind the rule, or without it."""
    rule: list[Decoded] = [event(RuleEnforced(), Rule.BOUNDS, source="/services/sources")] if bounded else []
    reports = [event(data, subject, number=number, source=AGENT) for number, (subject, data) in enumerate(facts, 1)]
    fold = Fold(SourcesProjection(), GENERATION, numbering=Numbering("own", 1))
    fold.apply_all(log_of([*rule, *reports]))
    return fold


def counted(*facts: tuple[str, Payload], bounded: bool = True) -> int:
    (row,) = fold_of(*facts, bounded=bounded).state.tables()["source_hour"].rows.values()
    return int(row.aggregates)


def test_each_card_counts_once_whatever_tells_of_it() -> None:
    failed = ("GPU-a", DeviceFailed(kind="DBE"))
    assert counted(survey("GPU-a", "GPU-b", None), failed, survey("GPU-b", "GPU-a", None)) == 4
    assert counted(survey("GPU-a", "GPU-b", None), failed, bounded=False) == 2


def test_a_container_counts_once_and_again_for_every_so_many_units() -> None:
    few, more = UNITS_PER_AGGREGATE, UNITS_PER_AGGREGATE + 1
    assert [counted(holds("c", units)) for units in (0, 1, few, more)] == [1, 1, 1, 2]
    assert counted(holds("c", more), holds("c", few), holds("other", more)) == 4
    assert counted(holds("c", more), bounded=False) == 1


def test_an_agent_that_invents_cards_or_units_is_over_its_limits() -> None:
    invented = [survey(*(f"{name}{number}" for number in range(CARDS_PER_NODE_MAX))) for name in "abcdefgh"]
    full = [
        holds(f"c{number}", UNITS_OF_CONTAINER_MAX) for number in range(UNITS_OF_NODE_MAX // UNITS_OF_CONTAINER_MAX)
    ]
    for facts in (invented, full):
        (limited,) = [one.data for one in fold_of(*facts).take_decided()]
        assert isinstance(limited, SourceLimited)
        assert (limited.limits, limited.aggregates) == (("aggregates",), LIMITS.aggregates + 1)
        assert fold_of(*facts, bounded=False).take_decided() == []
