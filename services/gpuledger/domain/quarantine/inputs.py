"""What quarantine rules see of a report and of a Node, under the names that NVSentinel's rules use. Pure."""

from collections.abc import Callable, Mapping, Set
from typing import Any, Final

from gpuledger.domain.quarantine.expressions import Fields, Variables
from gpuledger.events.envelope import Decoded
from gpuledger.events.health import NodeHealthReported
from gpuledger.events.nvsentinel import STRATEGY_NUMBERS, action_number

_OVERRIDES: Final[Fields] = {"force": None, "skip": None}

EVENT_FIELDS: Final[Fields] = {
    **dict.fromkeys(
        (
            "version", "id", "agent", "componentClass", "checkName", "isFatal", "isHealthy", "message", "errorCode",
            "recommendedAction", "customRecommendedAction", "entitiesImpacted", "metadata", "nodeName",
            "processingStrategy",
        )
    ),
    "generatedTimestamp": {"seconds": None, "nanos": None},
    "quarantineOverrides": _OVERRIDES,
    "drainOverrides": _OVERRIDES,
}  # fmt: skip
NODE_FIELDS: Final[Fields] = {"metadata": {"name": None, "labels": None}}

FIELDS: Final[Mapping[str | None, Fields]] = {
    "HealthEvent": {"event": EVENT_FIELDS},
    "Node": {"node": NODE_FIELDS},
    None: {"event": EVENT_FIELDS, "node": NODE_FIELDS},
}
"""What expressions of each kind are about."""


def variables(
    event: Decoded,
    data: NodeHealthReported,
    labels: Callable[[str], Mapping[str, str]],
    fields: Set[str] = EVENT_FIELDS.keys(),
) -> Variables:
    """What rules see of a report, as far as they use these fields, and of its node; `labels` gives those of a node."""
    return Variables(
        {
            "event": lambda: {name: value for name, value in _event(event, data).items() if name in fields},
            "node": lambda: node_fields(event.subject, labels(event.subject)),
        }
    )


def node_fields(name: str, labels: Mapping[str, str]) -> dict[str, Any]:
    """What rules see of a Node."""
    return {"metadata": {"name": name, "labels": dict(labels)}}


def _event(event: Decoded, data: NodeHealthReported) -> dict[str, Any]:
    seconds = int(event.time.timestamp())
    return {
        "version": 1,
        "id": event.id,
        "agent": data.monitor,
        "componentClass": data.component or "",
        "checkName": data.check,
        "isFatal": data.fatal,
        "isHealthy": data.healthy,
        "message": data.message,
        "errorCode": list(data.codes),
        "recommendedAction": action_number(data.action),
        "customRecommendedAction": data.custom_action or "",
        "entitiesImpacted": [{"entityType": one.type, "entityValue": one.value} for one in data.entities],
        "metadata": dict(data.metadata),
        "nodeName": event.subject,
        "processingStrategy": STRATEGY_NUMBERS[data.strategy],
        "generatedTimestamp": {"seconds": seconds, "nanos": event.time.microsecond * 1000},
        "quarantineOverrides": data.quarantine.model_dump(),
        "drainOverrides": data.drain.model_dump(),
    }
