"""The ModuleConfig as a fact: the module's settings, with a default for everything that it leaves out. Pure.

A setting that cannot be understood is a problem and has its default, except where mistakes are hard to revert: then
people approve devices, and statuses do not name claims.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

import orjson

from gpuledger.api.kinds import MODULE_CONFIG, MODULE_CONFIGS
from gpuledger.edge.kube.objects import mapping
from gpuledger.edge.watchers.decide import Object, ObjectPart, WatchedKind
from gpuledger.edge.watchers.fields import chosen, key_of, name_of, number, packed, shown, skipped, text
from gpuledger.events.payload import TEXT_LENGTH_MAX
from gpuledger.events.settings import (
    DEFAULT_CLAIM_REFERENCES,
    HEARTBEATS_MAX,
    REDACTED,
    SELECTOR_LABELS_MAX,
    SLICES_PER_UNIT_MAX,
    SettingsChanged,
)

_PERIOD: Final = re.compile(r"([1-9]\d{0,8})([smh])", re.ASCII).fullmatch
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}
_MODES: Final = ("Manual", "Automatic", "Selector")
MANUAL, SELECTOR = "Manual", "Selector"
_REFERENCES: Final = ("Full", "Redacted")


class Understood(NamedTuple):
    """The settings as far as they could be understood, by the names of `settings.changed`, and what could not be."""

    values: dict[str, Any]
    problems: tuple[str, ...]


def read(obj: Object) -> ObjectPart:
    """The settings in a ModuleConfig; those of other modules are irrelevant."""
    if name_of(obj) != MODULE_CONFIG:
        return skipped(obj)
    understood = understand(obj)
    return ObjectPart(key_of(obj), MODULE_CONFIG, packed(understood.values), understood.problems)


def merge(parts: list[bytes]) -> SettingsChanged:
    """The payload; all defaults without a ModuleConfig."""
    given = orjson.loads(parts[0]) if parts else {}
    return SettingsChanged.model_validate({"claim_references": DEFAULT_CLAIM_REFERENCES} | given)


def understand(obj: Object) -> Understood:
    """The settings that a ModuleConfig gives."""
    spec, settings = mapping(obj, "spec"), mapping(obj, "spec", "settings")
    values: dict[str, Any] = {}
    problems: list[str] = []
    for path, name, parse in _FIELDS:
        holder = spec if path == "enabled" else settings
        *above, last = path.split(".")
        given = mapping(holder, *above).get(last)
        if given is not None:
            value = parse(given)
            if value is None:
                problems.append(f"{path} is {shown(given)}")
            else:
                values[name] = value
    problems += _approve(values, mapping(settings, "deviceApproval"))
    problems += _refer(values, mapping(settings, "dra").get("claimReferences"))
    return Understood(values, tuple(problems))


def _approve(values: dict[str, Any], given: Mapping[str, Any]) -> Iterator[str]:
    """Who approves devices: people, where it cannot be understood."""
    mode = given.get("mode")
    if mode is not None and mode not in _MODES:
        values["approval_mode"] = MANUAL
        yield f"deviceApproval.mode is {shown(mode)}"
    elif mode is not None:
        values["approval_mode"] = mode
    selector = given.get("selector")
    if selector is None:
        return
    labels = mapping(selector, "matchLabels")
    fit = chosen(labels, lambda _key: True, SELECTOR_LABELS_MAX, TEXT_LENGTH_MAX)
    if not isinstance(selector, Mapping) or set(selector) - {"matchLabels"} or len(fit) != len(labels):
        if mode == SELECTOR:
            values["approval_mode"] = MANUAL
        yield f"deviceApproval.selector is {shown(selector)}, where only matchLabels is understood"
    else:
        values["approval_selector"] = fit


def _refer(values: dict[str, Any], given: object) -> Iterator[str]:
    """Whether statuses name claims: not where it cannot be understood."""
    if given is None:
        return
    is_known = given in _REFERENCES
    values["claim_references"] = given if is_known else REDACTED
    if not is_known:
        yield f"dra.claimReferences is {shown(given)}"


def _boolean(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _period_s(value: object) -> int | None:
    """Seconds of a period such as `30s`, `5m` or `1h`."""
    match = _PERIOD(value) if isinstance(value, str) else None
    return int(match[1]) * _SECONDS[match[2]] if match else None


_FIELDS: Final[tuple[tuple[str, str, Callable[[object], object]], ...]] = (
    ("enabled", "enabled", _boolean),
    ("managedNodes.labelKey", "managed_label_key", text),
    ("managedNodes.enabledByDefault", "enabled_by_default", _boolean),
    ("scheduling.defaultStrategy", "scheduling_strategy", text),
    ("scheduling.topologyKey", "topology_key", text),
    ("inventory.resyncPeriod", "resync_period_s", _period_s),
    ("highAvailability", "high_availability", _boolean),
    ("featureGates.DRAResourceAvailabilityVisibility", "dra_availability", _boolean),
    ("bootstrap.validator.enabled", "validator_enabled", _boolean),
    ("bootstrap.gfd.enabled", "gfd_enabled", _boolean),
    ("bootstrap.dcgm.enabled", "dcgm_enabled", _boolean),
    ("bootstrap.dcgmExporter.enabled", "dcgm_exporter_enabled", _boolean),
    ("bootstrap.heartbeats", "heartbeats", partial(number, most=HEARTBEATS_MAX)),
    ("bootstrap.recoveryHeartbeats", "recovery_heartbeats", partial(number, most=HEARTBEATS_MAX)),
    ("bootstrap.validationTimeout", "validation_timeout_s", _period_s),
    ("maxSlicesPerDevice", "max_slices_per_device", partial(number, most=SLICES_PER_UNIT_MAX)),
)
"""The path of a setting, its name in `settings.changed`, and its parser, which returns None for nonsense."""

KIND: Final = WatchedKind(
    "moduleconfig", MODULE_CONFIGS, SettingsChanged, SettingsChanged, read, merge,
    only_named=MODULE_CONFIG, always=(MODULE_CONFIG,),
)  # fmt: skip
