"""MachineConfigs and their pools for tests, as events have them and as objects of the API."""

from base64 import b64encode
from pathlib import Path
from random import Random
from typing import Any

import yaml

from gpuledger.domain.machineconfig.canonical_files import content_hash
from gpuledger.edge.watchers.resources import machineconfigpools, machineconfigs
from gpuledger.events.machine_config import (
    ConfigFile,
    ConfigUnit,
    MachineConfigDefined,
    MachineConfigPoolDefined,
    pack_content,
)

EVERYTHING: dict[str, Any] = {"labels": {}}


def config_file(path: str = "/etc/a.conf", content: str = "a\n", **more: Any) -> ConfigFile:
    """A file of a MachineConfig, as its event has it."""
    return ConfigFile(path=path, content=pack_content(content), hash=content_hash(content), **more)


def machine_config(*entries: ConfigFile | ConfigUnit, **fields: Any) -> MachineConfigDefined:
    """A MachineConfig with these files and units."""
    return MachineConfigDefined(
        uid=fields.pop("uid", "u"),
        files=tuple(one for one in entries if isinstance(one, ConfigFile)),
        units=tuple(one for one in entries if isinstance(one, ConfigUnit)),
        **fields,
    )


def config_pool(**fields: Any) -> MachineConfigPoolDefined:
    """A MachineConfigPool that selects all nodes and all MachineConfigs."""
    given = {"uid": "p", "node_selector": EVERYTHING, "config_selector": EVERYTHING} | fields
    return MachineConfigPoolDefined.model_validate(given)


def config_objects(file: Path) -> list[dict[str, Any]]:
    """The objects in a file of manifests."""
    return [one for one in yaml.safe_load_all(file.read_text()) if one]


def read_configs(objects: list[dict[str, Any]]) -> list[tuple[str, MachineConfigDefined]]:
    """The MachineConfigs among objects, by name, as watchers read them."""
    return [
        (one["metadata"]["name"], machineconfigs.KIND.combine([machineconfigs.read(one).content]))
        for one in objects
        if one["kind"] == "MachineConfig"
    ]


def read_pools(objects: list[dict[str, Any]]) -> dict[str, MachineConfigPoolDefined]:
    """The MachineConfigPools among objects, by name, as watchers read them."""
    return {
        one["metadata"]["name"]: machineconfigpools.KIND.combine([machineconfigpools.read(one).content])
        for one in objects
        if one["kind"] == "MachineConfigPool"
    }


def incompressible(seed: int, length: int) -> str:
    """A text of so many characters that does not get smaller."""
    return b64encode(Random(seed).randbytes(length)).decode()[:length]
