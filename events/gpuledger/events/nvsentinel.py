"""The names that NVSentinel gives to the fields and values of health events on the wire. Pure.

The node agent's gateway reads them and the export writes them. Neither imports the other, so the names live here.
"""

import re
from collections.abc import Mapping
from typing import Final

from gpuledger.events.health import Strategy
from gpuledger.events.recommended_action import (
    CONTACT_SUPPORT,
    EXTENDED_DIAGNOSTICS,
    NO_ACTION,
    RESET,
    RESTART_MACHINE,
    RESTART_VIRTUAL_MACHINE,
)

CLOUD_EVENT_TYPE: Final = "com.nvidia.nvsentinel.health.v1"
"""The type of NVSentinel's own CloudEvents about health."""

EVENT_VERSION: Final = "v1"
"""What such an event has as the version of its `healthEvent`."""

WIRE_NAMES: Final[Mapping[str, str]] = {
    "monitor": "agent",
    "check": "checkName",
    "component": "componentClass",
    "healthy": "isHealthy",
    "fatal": "isFatal",
    "message": "message",
    "action": "recommendedAction",
    "custom_action": "customRecommendedAction",
    "codes": "errorCode",
    "entities": "entitiesImpacted",
    "type": "entityType",
    "value": "entityValue",
    "metadata": "metadata",
    "strategy": "processingStrategy",
    "quarantine": "quarantineOverrides",
    "drain": "drainOverrides",
    "report": "id",
    "first_at": "generatedTimestamp",
}
"""The fields of `NodeHealthReported`, and those of its entities, by their names on the wire."""

NODE_NAME: Final = "nodeName"
"""The field that names the node, which is the subject of our events."""

ACTION_NUMBERS: Final[Mapping[str, int]] = {
    NO_ACTION: 0,
    RESET: 2,
    CONTACT_SUPPORT: 5,
    "RUN_FIELDDIAG": 6,
    RESTART_VIRTUAL_MACHINE: 15,
    RESTART_MACHINE: 24,
    "REPLACE_VM": 25,
    EXTENDED_DIAGNOSTICS: 26,
    "CUSTOM": 27,
    "REMEDIATE": 28,
    "UNKNOWN": 99,
}
"""The numbers of `RecommendedAction`."""

ACTION_NAMES: Final[Mapping[int, str]] = {number: name for name, number in ACTION_NUMBERS.items()}

_NUMBER: Final = re.compile(r"-?[0-9]{1,10}")

STRATEGY_NUMBERS: Final[Mapping[Strategy, int]] = {"execute-remediation": 1, "store-only": 2, "store-and-analyse": 3}
"""The numbers of `ProcessingStrategy`; 0, unspecified, means the first."""

STRATEGIES: Final[Mapping[int, Strategy]] = {
    0: "execute-remediation",
    **{number: strategy for strategy, number in STRATEGY_NUMBERS.items()},
}


def action_name(number: int) -> str:
    """The name of a recommended action, or its number as text where it has no name here."""
    return ACTION_NAMES.get(number, str(number))


def action_number(name: str) -> int:
    """The number of a recommended action that `action_name` gave; `UNKNOWN` for any other text."""
    if name in ACTION_NUMBERS:
        return ACTION_NUMBERS[name]
    return int(name) if _NUMBER.fullmatch(name) else ACTION_NUMBERS["UNKNOWN"]
