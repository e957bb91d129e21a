"""Reports of a health monitor, for tests of what is folded of them."""

from typing import Any, Final

from gpuledger.events.envelope import Decoded
from gpuledger.events.health import HealthEntity, NodeHealthReported
from gpuledger.events.rule import RuleEnforced
from support.events import AGENT, event


def card_report(card: str, *codes: str, healthy: bool = False, check: str = "XID", **more: Any) -> NodeHealthReported:
    """A report of a check on a card."""
    return NodeHealthReported(
        monitor="syslog",
        check=check,
        healthy=healthy,
        fatal=not healthy,
        codes=codes,
        entities=(HealthEntity(type="GPU_UUID", value=card),),
        **more,
    )


def in_force() -> Decoded:
    """What has folds count reports from there on: the service `sources` enforces it."""
    return event(RuleEnforced(version=1), NodeHealthReported.TYPE, source="/services/sources")


def reported(*reports: tuple[float, NodeHealthReported], source: str = AGENT, first: int = 1) -> list[Decoded]:
    """Reports of a node's agent at these hours, numbered in this order."""
    node = source.split("/")[2]
    return [event(data, node, number=number, at=at, source=source) for number, (at, data) in enumerate(reports, first)]


REPORTS_OF_HEALTH: Final = (
    (8, card_report("a", "79", message="fell off the bus", action="RESTART_VM", count=2)),
    (8.5, card_report("a", "79", "94")),
    (9, card_report("a", healthy=True)),
    (9.2, card_report("a", "79")),
    (8.2, card_report("a", "79")),  # late
    (9.4, card_report("a", healthy=True)),
    (9.3, card_report("a", "79", healthy=True)),  # late, and ends it earlier
    (9.35, card_report("a", "79", check="ECC")),
    (9.5, card_report("a", healthy=True, check="ECC")),
    (11.2, card_report("a", "79")),
    (16, card_report("b", "48")),
    (17, card_report("c", "48")),
)
"""What a monitor found on cards of a node, by the time in the tests' own unit, in the order of recording."""
