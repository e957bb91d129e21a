"""What a simulated node's monitor of the system log reports of cards, as NVSentinel's monitor does. Pure.

Its check, codes and entities are those of recorded reports. An XID that leaves the card usable is none of its faults.
"""

from typing import Final

from gpuledger.events.device import Card
from gpuledger.events.health import HealthEntity, NodeHealthReported
from gpuledger.tools.simulation.failures import Remedy, XidError

MONITOR: Final = "syslog-health-monitor"
CHECK: Final = "SysLogsXIDError"
COMPONENT: Final = "GPU"
_ACTIONS: Final = {Remedy.RESET: "COMPONENT_RESET", Remedy.REPLACEMENT: "REPLACE_VM"}


def fault(card: Card, xid: XidError, remedy: Remedy) -> NodeHealthReported:
    """The report of a card that cannot be used until the remedy."""
    return _report(card, healthy=False, message=xid.message, action=_ACTIONS[remedy], codes=(xid.code,))


def recovery(card: Card) -> NodeHealthReported:
    """The report of a card that can be used again."""
    return _report(card, healthy=True)


def _report(
    card: Card, *, healthy: bool, message: str = "", action: str = "NONE", codes: tuple[str, ...] = ()
) -> NodeHealthReported:
    assert card.uuid is not None, "every card of a fleet has a UUID"
    return NodeHealthReported(
        monitor=MONITOR,
        check=CHECK,
        component=COMPONENT,
        healthy=healthy,
        fatal=not healthy,
        message=message,
        action=action,
        codes=codes,
        entities=(
            HealthEntity(type="PCI", value=card.pci_address),
            HealthEntity(type="GPU_UUID", value=card.uuid),
        ),
        devices=(card.uuid,),
    )
