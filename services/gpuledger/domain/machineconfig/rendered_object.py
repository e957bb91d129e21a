"""RenderedMachineConfigs as objects of the API: written for them, and read by each node that applies one. Pure.

It imports nothing that a small process has to do without. A node takes an object only if its content has the hash that
its spec and its name say, so nothing that was cut or changed on the way is applied.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from gpuledger.api.kinds import RENDERED_MACHINE_CONFIGS
from gpuledger.api.machine_config import LABEL_POOL, REVISION_LENGTH, RebootStrategy, rendered_name
from gpuledger.domain.machineconfig.config_hash import config_hash
from gpuledger.domain.machineconfig.desired import DesiredConfig, DesiredFile, DesiredUnit

Document = dict[str, Any]

FILE_STATES: Final = ("present", "absent")
UNIT_STATES: Final = ("started", "stopped", "restarted", "reloaded")


class RenderedObjectError(ValueError):
    """A RenderedMachineConfig that is not to be applied; the message says why."""


def document_of(config: DesiredConfig, sources: Iterable[tuple[str, int]] = ()) -> Document:
    """The object of a configuration; `sources` are the MachineConfigs that it was merged from, with priorities."""
    return {
        "apiVersion": RENDERED_MACHINE_CONFIGS.api_version,
        "kind": RENDERED_MACHINE_CONFIGS.kind,
        "metadata": {"name": config.name, "labels": {LABEL_POOL: config.pool}},
        "spec": {
            "poolName": config.pool,
            "revision": config.config_hash[:REVISION_LENGTH],
            "configHash": config.config_hash,
            "config": {
                "files": [one._asdict() for one in config.files],
                "systemd": {"units": [_given(one._asdict()) for one in config.units]},
            },
            "sources": [{"name": name, "priority": priority} for name, priority in sources],
            "reboot": {
                "required": config.reboot_required,
                "strategy": config.reboot_strategy,
                "minIntervalSeconds": config.reboot_min_interval_s,
            },
        },
    }


def read_object(document: Mapping[str, Any]) -> DesiredConfig:
    """The configuration in an object, checked against its hash and its name.

    Raises:
        RenderedObjectError: it is not what a RenderedMachineConfig has to be, or its content differs from its hash.
    """
    config = _read(document)
    found = config_hash(config.files, config.units, reboot_required=config.reboot_required)
    if found != config.config_hash:
        raise RenderedObjectError(
            f"The content of RenderedMachineConfig {config.name} has the hash {found}, and its spec says "
            f"{config.config_hash}: it was changed or cut. Delete it, and the service `rollout` writes it again."
        )
    if not _is_name_of(config):
        raise RenderedObjectError(
            f"RenderedMachineConfig {config.name} has the name of another one than that of pool {config.pool} with "
            f"revision {config.config_hash[:REVISION_LENGTH]}. Take the object that the service `rollout` wrote."
        )
    return config


def _is_name_of(config: DesiredConfig) -> bool:
    """Whether the name is that of the pool and the hash, with or without the number of a collision."""
    name, dash, number = config.name, "", ""
    if name != rendered_name(config.pool, config.config_hash):
        name, dash, number = config.name.rpartition("-")
    return name == rendered_name(config.pool, config.config_hash) and (not dash or number.isdecimal())


def _read(document: Mapping[str, Any]) -> DesiredConfig:
    metadata, spec = _mapping(document, "metadata"), _mapping(document, "spec")
    content, reboot = _mapping(spec, "config"), _mapping(spec, "reboot")
    return DesiredConfig(
        name=_text(metadata, "name"),
        pool=_text(spec, "poolName"),
        config_hash=_text(spec, "configHash"),
        files=tuple(_file(one) for one in _objects(content, "files")),
        units=tuple(_unit(one) for one in _objects(_mapping(content, "systemd", {}), "units")),
        reboot_required=_boolean(reboot, "required"),
        reboot_strategy=_choice(reboot, "strategy", tuple(RebootStrategy)),
        reboot_min_interval_s=_whole(reboot, "minIntervalSeconds"),
    )


def _file(given: Mapping[str, Any]) -> DesiredFile:
    return DesiredFile(
        _text(given, "path"), _text(given, "content", ""), _whole(given, "mode"), _text(given, "owner"),
        _choice(given, "state", FILE_STATES),
    )  # fmt: skip


def _unit(given: Mapping[str, Any]) -> DesiredUnit:
    enabled = None if given.get("enabled") is None else _boolean(given, "enabled")
    state = None if not given.get("state") else _choice(given, "state", UNIT_STATES)
    return DesiredUnit(_text(given, "name"), enabled, state, _boolean(given, "mask", default=False))


def _given(fields: Document) -> Document:
    return {key: value for key, value in fields.items() if value is not None}


def _mapping(given: Mapping[str, Any], key: str, default: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
    value = given.get(key, default)
    if not isinstance(value, Mapping):
        raise _wrong(key, "an object")
    return value


def _objects(given: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    value = given.get(key) or []
    if not isinstance(value, list) or not all(isinstance(one, Mapping) for one in value):
        raise _wrong(key, "a list of objects")
    return value


def _text(given: Mapping[str, Any], key: str, default: str | None = None) -> str:
    value = given.get(key, default)
    if not isinstance(value, str) or (not value and default is None):
        raise _wrong(key, "a text")
    return value


def _whole(given: Mapping[str, Any], key: str) -> int:
    value = given.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise _wrong(key, "a whole number")
    return value


def _boolean(given: Mapping[str, Any], key: str, *, default: bool | None = None) -> bool:
    value = given.get(key, default)
    if not isinstance(value, bool):
        raise _wrong(key, "true or false")
    return value


def _choice(given: Mapping[str, Any], key: str, allowed: tuple[str, ...]) -> str:
    value = given.get(key)
    if not isinstance(value, str) or value not in allowed:
        raise _wrong(key, f"one of {', '.join(allowed)}")
    return value


def _wrong(key: str, expected: str) -> RenderedObjectError:
    return RenderedObjectError(
        f"The RenderedMachineConfig has no {key} that is {expected}. Take the object that the service `rollout` wrote."
    )
