"""What our own agents find of their cards, in the form in which other health monitors report. Pure."""

from typing import Final

from gpuledger.events.device import DeviceHealthChanged
from gpuledger.events.health import HealthEntity, NodeHealthReported
from gpuledger.events.recommended_action import NO_ACTION

AGENT_MONITOR: Final = "gpuledger-agent"
"""The monitor that our own agents' findings are reported under."""

AGENT_CHECK: Final = "DeviceHealth"
AGENT_COMPONENT: Final = "GPU"


def card_report(card: str, data: DeviceHealthChanged) -> NodeHealthReported:
    """An agent's verdict on a card, by its UUID or place. A fault makes the card unusable, and so is fatal."""
    return NodeHealthReported.model_construct(
        monitor=AGENT_MONITOR,
        check=AGENT_CHECK,
        component=AGENT_COMPONENT,
        healthy=data.healthy,
        fatal=not data.healthy,
        message=data.message,
        action=data.action or NO_ACTION,
        codes=() if data.healthy or data.kind is None else (data.kind,),
        entities=(HealthEntity(type="GPU_UUID", value=card),),
        devices=(card,),
    )
