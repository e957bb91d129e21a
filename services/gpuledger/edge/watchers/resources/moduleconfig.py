"""The module's settings as a fact: from the ModuleConfig, else from the installation, else their defaults. Pure.

A setting that cannot be understood, or that nobody knows, is a problem, and recorded with what is in force instead:
its default, except where mistakes are hard to revert: then people approve devices, and statuses do not name claims.
Nothing here may fail because of what somebody wrote into a ModuleConfig.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import partial
from typing import Any, Final, NamedTuple

import orjson

from gpuledger.api.kinds import MODULE_CONFIG, MODULE_CONFIGS
from gpuledger.api.pool_spec import SELECTOR_OPERATORS
from gpuledger.edge.kube.objects import mapping
from gpuledger.edge.kube.schema.object_names import QUALIFIED_NAME, qualified_name_problem
from gpuledger.edge.watchers.decide import Object, ObjectPart, WatchedKind
from gpuledger.edge.watchers.fields import (
    SHOWN_LENGTH_MAX,
    FieldReader,
    key_of,
    name_of,
    number,
    packed,
    shown,
    skipped,
    text,
)
from gpuledger.edge.watchers.resources.module_refusals import (
    CHART_DECIDES,
    HIGH_AVAILABILITY,
    Installation,
    Refused,
    as_json,
    no_object,
    not_scaled,
    recorded,
)
from gpuledger.edge.watchers.resources.selectors import labels_selected
from gpuledger.events.payload import BIGINT_MAX
from gpuledger.events.settings import (
    DEFAULT_CLAIM_REFERENCES,
    HEARTBEATS_MAX,
    REDACTED,
    SLICES_PER_UNIT_MAX,
    SettingsChanged,
)

RESYNC_MIN_S: Final = 30
"""The shortest `inventory.resyncPeriod`."""

_PERIOD: Final = re.compile(r"([1-9]\d{0,8})([smh])", re.ASCII).fullmatch
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}
_MODES: Final = ("Manual", "Automatic", "Selector")
MANUAL, SELECTOR = "Manual", "Selector"
_REFERENCES: Final = ("Full", "Redacted")
_APPROVAL: Final = "deviceApproval"

UNSET: Final[Mapping[str, Any]] = {"claim_references": DEFAULT_CLAIM_REFERENCES}
"""What is in force where nothing is set, beside the defaults of `settings.changed`."""


class Understood(NamedTuple):
    """The settings as far as they could be understood, by the names of `settings.changed`, and what could not be."""

    values: dict[str, Any]
    refused: tuple[Refused, ...]

    @property
    def problems(self) -> tuple[str, ...]:
        """What could not be understood."""
        return tuple(one.problem for one in self.refused)


class Values(NamedTuple):
    """What a setting may be: a parser (None for nonsense), words for people, a JSON Schema, and a text's pattern.

    The pattern is not in the schema, whose validators would show it to people in place of the words.
    """

    parse: Callable[[object], object]
    words: str
    schema: Mapping[str, Any]
    pattern: str = ""


class Setting(NamedTuple):
    """A setting: its path, its name in `settings.changed`, and what it may be."""

    path: str
    name: str
    values: Values


def kind(installed: Installation) -> WatchedKind[SettingsChanged]:
    """The watched kind, where the installation gives these settings; those of a ModuleConfig take precedence."""
    return WatchedKind(
        "moduleconfig", MODULE_CONFIGS, SettingsChanged, SettingsChanged,
        partial(read, installed), partial(merge, installed),
        only_named=MODULE_CONFIG, always=(MODULE_CONFIG,),
    )  # fmt: skip


def read(installed: Installation, obj: Object) -> ObjectPart:
    """The settings in a ModuleConfig; those of other modules are irrelevant."""
    if name_of(obj) != MODULE_CONFIG:
        return skipped(obj)
    spec = mapping(obj, "spec")
    given = spec.get("settings")
    found = understand(_over(installed.settings, mapping(given)), spec.get("enabled"))
    refused = [*no_object(given), *found.refused, *not_scaled(installed, mapping(given))]
    content = found.values | {
        "generation": number(mapping(obj, "metadata").get("generation"), BIGINT_MAX),
        "not_in_force": recorded(refused),
    }
    return ObjectPart(key_of(obj), MODULE_CONFIG, packed(content), tuple(one.problem for one in refused))


def merge(installed: Installation, parts: list[bytes]) -> SettingsChanged:
    """The payload; without a ModuleConfig, the installation's settings."""
    given = orjson.loads(parts[0]) if parts else orjson.loads(packed(understand(installed.settings).values))
    return SettingsChanged.model_validate(UNSET | given)


def understand(settings: Mapping[str, Any], enabled: object = None) -> Understood:
    """The settings that are given; `enabled` is the ModuleConfig's own field."""
    values: dict[str, Any] = {}
    refused: list[Refused] = []
    given = {"enabled": enabled} | {one.path: _at(settings, one.path) for one in _SETTINGS}
    for one in (_ENABLED, *_SETTINGS):
        if given[one.path] is None:
            continue
        value = one.values.parse(given[one.path])
        if value is None:
            problem = f"{one.path} is {shown(given[one.path])}, and not {one.values.words}"
            refused.append(Refused(one.path, problem, _default_of(one)))
        else:
            values[one.name] = value
    refused += _approve(values, mapping(settings, "deviceApproval"))
    refused += _refer(values, mapping(settings, "dra").get("claimReferences"))
    refused += _unknown_settings(settings, _TREE)
    return Understood(values, tuple(refused))


def _default_of(one: Setting) -> str:
    """The default as a ModuleConfig would give it."""
    value = getattr(SettingsChanged.model_validate(UNSET), one.name)
    if value is None:
        return CHART_DECIDES
    return _period(value) if one.name.endswith("_s") else value if isinstance(value, str) else as_json(value)


def _period(seconds: int) -> str:
    unit = next(unit for unit in ("h", "m", "s") if seconds % _SECONDS[unit] == 0)
    return f"{seconds // _SECONDS[unit]}{unit}"


def _at(settings: Mapping[str, Any], path: str) -> object:
    *above, last = path.split(".")
    return mapping(settings, *above).get(last)


def _over(below: Mapping[str, Any], above: Mapping[str, Any], tree: "Tree | None" = None) -> Mapping[str, Any]:
    """Settings of which those `above` take precedence, each as a whole."""
    names = _TREE if tree is None else tree
    merged = {**below, **above}
    for key in below.keys() & above.keys():
        if names.get(key) and isinstance(below[key], Mapping) and isinstance(above[key], Mapping):
            merged[key] = _over(below[key], above[key], names[key])
    return merged


def _unknown_settings(settings: Mapping[str, Any], names: "Tree", place: str = "") -> Iterator[Refused]:
    """What nobody knows, and what it may have been meant to be."""
    for key in sorted(map(str, settings.keys() - names.keys())):
        field, close = f"{place}{key[:SHOWN_LENGTH_MAX]}", get_close_matches(key[:SHOWN_LENGTH_MAX], names, n=1)
        meant = f"; did you mean {place}{close[0]}?" if close else ""
        yield Refused(field, f"{field} is no setting{meant}")
    for key in sorted(settings.keys() & names.keys()):
        if below := names[key]:
            given = settings[key]
            if isinstance(given, Mapping):
                yield from _unknown_settings(given, below, f"{place}{key}.")
            elif given is not None:
                problem = f"{place}{key} is {shown(given)}, and not an object with {', '.join(sorted(below))}"
                yield Refused(f"{place}{key}", problem, "every default below it")


def _approve(values: dict[str, Any], given: Mapping[str, Any]) -> Iterator[Refused]:
    """Who approves devices: people, where it cannot be understood."""
    mode = given.get("mode")
    if mode is not None and mode not in _MODES:
        values["approval_mode"] = MANUAL
        yield Refused(f"{_APPROVAL}.mode", f"{_APPROVAL}.mode is {shown(mode)}, and not {_one_of(_MODES)}", MANUAL)
    elif mode is not None:
        values["approval_mode"] = mode
    if given.get("selector") is None:
        return
    reader = FieldReader(place=f"{_APPROVAL}.")
    selector = labels_selected(given, "selector", reader)
    if not reader.problems:
        values |= {"approval_selector": selector["labels"], "approval_requirements": selector["requirements"]}
    elif mode == SELECTOR:
        values["approval_mode"] = MANUAL
    instead = f"{_APPROVAL}.mode {MANUAL}" if mode == SELECTOR else ""
    yield from (Refused(f"{_APPROVAL}.selector", problem, instead) for problem in reader.problems)


def _refer(values: dict[str, Any], given: object) -> Iterator[Refused]:
    """Whether statuses name claims: not where it cannot be understood."""
    if given is None:
        return
    is_known = given in _REFERENCES
    values["claim_references"] = given if is_known else REDACTED
    if not is_known:
        problem = f"dra.claimReferences is {shown(given)}, and not {_one_of(_REFERENCES)}"
        yield Refused("dra.claimReferences", problem, REDACTED)


def _one_of(allowed: tuple[str, ...]) -> str:
    return f"{', '.join(allowed[:-1])} or {allowed[-1]}"


def _label_key(value: object) -> str | None:
    found = text(value)
    return None if found is None or qualified_name_problem(found) else found


def _boolean(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _period_s(value: object, least: int = 1) -> int | None:
    """Seconds of a period such as `30s`, `5m` or `1h`."""
    match = _PERIOD(value) if isinstance(value, str) else None
    seconds = int(match[1]) * _SECONDS[match[2]] if match else 0
    return seconds if seconds >= least else None


def _up_to(most: int) -> Values:
    schema = {"type": "integer", "minimum": 1, "maximum": most}
    return Values(partial(number, most=most), f"a number from 1 to {most}", schema)


_BOOLEAN: Final = Values(_boolean, "true or false", {"type": "boolean"})
_TEXT: Final = Values(text, "a text", {"type": "string", "minLength": 1})
_LABEL_KEY: Final = Values(
    _label_key, "the key of a label", {"type": "string"}, f"^([a-z0-9.-]{{1,253}}/)?{QUALIFIED_NAME}$"
)
_ANY_PERIOD: Final = Values(_period_s, "a period such as 30s, 5m or 1h", {"type": "string"}, "^[1-9][0-9]{0,8}[smh]$")
_RESYNC_PERIOD: Final = Values(
    partial(_period_s, least=RESYNC_MIN_S),
    f"a period of at least {RESYNC_MIN_S}s, such as 30s, 5m or 1h",
    {"type": "string"},
    "^(([3-9][0-9]|[1-9][0-9]{2,8})s|[1-9][0-9]{0,8}[mh])$",
)

_ENABLED: Final = Setting("enabled", "enabled", _BOOLEAN)

_SETTINGS: Final = (
    Setting("managedNodes.labelKey", "managed_label_key", _LABEL_KEY),
    Setting("managedNodes.enabledByDefault", "enabled_by_default", _BOOLEAN),
    Setting("scheduling.defaultStrategy", "scheduling_strategy", _TEXT),
    Setting("scheduling.topologyKey", "topology_key", _LABEL_KEY),
    Setting("inventory.resyncPeriod", "resync_period_s", _RESYNC_PERIOD),
    Setting(HIGH_AVAILABILITY, "high_availability", _BOOLEAN),
    Setting("featureGates.DRAResourceAvailabilityVisibility", "dra_availability", _BOOLEAN),
    Setting("bootstrap.validator.enabled", "validator_enabled", _BOOLEAN),
    Setting("bootstrap.gfd.enabled", "gfd_enabled", _BOOLEAN),
    Setting("bootstrap.dcgm.enabled", "dcgm_enabled", _BOOLEAN),
    Setting("bootstrap.dcgmExporter.enabled", "dcgm_exporter_enabled", _BOOLEAN),
    Setting("bootstrap.heartbeats", "heartbeats", _up_to(HEARTBEATS_MAX)),
    Setting("bootstrap.recoveryHeartbeats", "recovery_heartbeats", _up_to(HEARTBEATS_MAX)),
    Setting("bootstrap.validationTimeout", "validation_timeout_s", _ANY_PERIOD),
    Setting("maxSlicesPerDevice", "max_slices_per_device", _up_to(SLICES_PER_UNIT_MAX)),
)

_SELECTOR_SCHEMA: Final = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "matchLabels": {"type": "object", "additionalProperties": {"type": "string"}},
        "matchExpressions": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["key", "operator"],
                "properties": {
                    "key": {"type": "string", "minLength": 1},
                    "operator": {"enum": list(SELECTOR_OPERATORS)},
                    "values": {"type": "array", "items": {"type": "string"}},
                },
            },
        },
    },
}

_APART: Final[Mapping[str, Mapping[str, Any]]] = {
    "deviceApproval.mode": {"enum": list(_MODES)},
    "deviceApproval.selector": _SELECTOR_SCHEMA,
    "dra.claimReferences": {"enum": list(_REFERENCES)},
}
"""The schemas of settings that are not simply a value or nonsense."""

Tree = dict[str, Any]
"""Names of settings, and of what is below them; nothing is below a setting."""


def _tree(paths: Iterable[str]) -> Tree:
    tree: Tree = {}
    for path in paths:
        place = tree
        for name in path.split("."):
            place = place.setdefault(name, {})
    return tree


_TREE: Final = _tree((*(one.path for one in _SETTINGS), *_APART))


def schema() -> dict[str, Any]:
    """The JSON Schema of the settings, as the chart's values have it."""
    document: dict[str, Any] = {"type": "object", "additionalProperties": False, "properties": {}}
    leaves = {**{one.path: one.values.schema for one in _SETTINGS}, **_APART}
    for path, leaf in leaves.items():
        *above, last = path.split(".")
        place = document
        for name in above:
            branch = {"type": "object", "additionalProperties": False, "properties": {}}
            place = place["properties"].setdefault(name, branch)
        place["properties"][last] = dict(leaf)
    return document


def patterns() -> Iterator[tuple[str, str, str]]:
    """The settings that are texts of a form: path, pattern and words, as the chart refuses them."""
    return ((one.path, one.values.pattern, one.values.words) for one in _SETTINGS if one.values.pattern)


KIND: Final = kind(Installation({}))
"""The watched kind, where the installation gives no settings."""
