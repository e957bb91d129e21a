"""MachineConfigPools as facts: their whole spec. Pure.

A pool must never take more nodes, or take more of them at a time, than its author meant. One that is not fully
understood has problems, and selects neither nodes nor MachineConfigs until somebody mends it.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from gpuledger.api import machine_config as limits
from gpuledger.api.kinds import MACHINE_CONFIG_POOLS
from gpuledger.edge.kube.objects import mapping
from gpuledger.edge.watchers.decide import Object, ObjectPart, WatchedKind
from gpuledger.edge.watchers.fields import FieldReader, name_of, shown, skipped, uid_of
from gpuledger.edge.watchers.resources.selectors import labels_selected
from gpuledger.events.machine_config import MachineConfigPoolDefined, MachineConfigPoolGone

_SPEC: Final = (
    "nodeSelector", "machineConfigSelector", "rollout", "reboot", "revisionHistory", "paused",
)  # fmt: skip
_ROLLOUT: Final = (
    "debounceSeconds", "applyTimeoutSeconds", "maxUnavailable", "drainTimeoutSeconds", "drainRetrySeconds",
    "preferIdle",
)  # fmt: skip
_PERCENT: Final = re.compile(r"[1-9][0-9]?%|100%").fullmatch
_WHOLE_MAX: Final = 2**31 - 1
_NOTHING: Final[dict[str, Any]] = {"node_selector": None, "config_selector": None}


def read(obj: Object) -> ObjectPart:
    """The content of a MachineConfigPool: its whole spec."""
    name, reader = name_of(obj), FieldReader()
    if name is None:
        return skipped(obj, "it has no name")
    metadata = mapping(obj, "metadata")
    spec, place = reader.nested(obj, "spec", _SPEC)
    if len(name) > limits.POOL_NAME_LENGTH_MAX:
        reader.note(
            f"metadata.name has more than {limits.POOL_NAME_LENGTH_MAX} characters, and is to be a label's value"
        )
    content = {
        "uid": uid_of(obj),
        "generation": reader.count(metadata, "generation"),
        "node_selector": _selector(spec, "nodeSelector", place),
        "config_selector": _selector(spec, "machineConfigSelector", place),
        "paused": place.boolean(spec, "paused") is True,
        "pinned_revision": reader.text(mapping(metadata, "annotations"), limits.ANNOTATION_PINNED),
        **_rollout(spec, place),
        **_reboot(spec, place),
        **_history(spec, place),
    }
    if reader.problems:
        content |= _NOTHING
    return reader.part(obj, name, content | {"problems": list(reader.problems)}, _without_selectors)


def _selector(spec: Mapping[str, Any], key: str, place: FieldReader) -> dict[str, Any] | None:
    return None if spec.get(key) is None else labels_selected(spec, key, place)


def _rollout(spec: Mapping[str, Any], place: FieldReader) -> dict[str, Any]:
    given, at = place.nested(spec, "rollout", _ROLLOUT)
    retry_s = at.bounded(given, "drainRetrySeconds", 0, limits.DRAIN_RETRY_GIVEN_MAX_S, limits.DRAIN_RETRY_GIVEN_MIN_S)
    return {
        "debounce_s": at.bounded(given, "debounceSeconds", limits.DEBOUNCE_DEFAULT_S, limits.DEBOUNCE_MAX_S),
        "apply_timeout_s": at.bounded(
            given, "applyTimeoutSeconds",
            limits.APPLY_TIMEOUT_DEFAULT_S, limits.APPLY_TIMEOUT_MAX_S, limits.APPLY_TIMEOUT_MIN_S,
        ),
        "max_unavailable": _max_unavailable(given, at),
        "drain_timeout_s": at.bounded(
            given, "drainTimeoutSeconds",
            limits.DRAIN_TIMEOUT_DEFAULT_S, limits.DRAIN_TIMEOUT_MAX_S, limits.DRAIN_TIMEOUT_MIN_S,
        ),
        "drain_retry_s": retry_s or None,
        "prefers_idle": at.boolean(given, "preferIdle") is True,
    }  # fmt: skip


def _max_unavailable(given: Mapping[str, Any], place: FieldReader) -> str:
    value = given.get("maxUnavailable")
    if value is None:
        return str(limits.MAX_UNAVAILABLE_DEFAULT)
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value < 10**9:
        return str(value)
    if isinstance(value, str) and _PERCENT(value):
        return value
    place.note_at("maxUnavailable", f"is {shown(value)}; give a number of nodes from 1, or a percentage such as 10%")
    return str(limits.MAX_UNAVAILABLE_DEFAULT)


def _reboot(spec: Mapping[str, Any], place: FieldReader) -> dict[str, Any]:
    given, at = place.nested(spec, "reboot", ("strategy", "minIntervalSeconds"))
    strategy = at.choice(given, "strategy", tuple(limits.RebootStrategy))
    return {
        "reboot_strategy": strategy or limits.RebootStrategy.NEVER,
        "reboot_min_interval_s": at.bounded(given, "minIntervalSeconds", limits.REBOOT_INTERVAL_DEFAULT_S, _WHOLE_MAX),
    }


def _history(spec: Mapping[str, Any], place: FieldReader) -> dict[str, Any]:
    given, at = place.nested(spec, "revisionHistory", ("limit",))
    return {"history_limit": at.bounded(given, "limit", limits.HISTORY_DEFAULT, _WHOLE_MAX)}


def _without_selectors(content: dict[str, Any]) -> str:
    content.update(_NOTHING, problems=["its selectors are too large for the ledger; make them smaller"])
    return "its selectors"


KIND: Final = WatchedKind(
    MACHINE_CONFIG_POOLS.plural, MACHINE_CONFIG_POOLS, MachineConfigPoolDefined, MachineConfigPoolGone, read
)
