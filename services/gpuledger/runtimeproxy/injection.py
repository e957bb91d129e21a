"""Puts GPUs into the kubelet's request to create a container, in place of all others that somebody gave it. Pure.

A device plugin names GPUs in up to four ways: by variables, CDI names, device nodes and mounts. One that stayed would
give the container a second card. What does not name a card stays: `/dev/nvidiactl`, `/dev/nvidia-uvm`, other CDI kinds.
"""

import posixpath
import re
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from gpuledger.domain.sharing.container_env import HIDDEN, VISIBLE_DEVICES, confines
from gpuledger.runtimeproxy.cri_pb2 import CDIDevice, ContainerConfig, Device, KeyValue, Mount
from gpuledger.runtimeproxy.decide import ContainerGpus

CDI_ANNOTATION_PREFIX: Final = "cdi.k8s.io/"
"""How annotations of containers begin that name CDI devices, from before CRI had a field for them."""

VOLUME_MOUNTS: Final = "/var/run/nvidia-container-devices/"
"""Where NVIDIA's device plugin mounts something for every GPU of a container, with `volume-mounts`."""

_CARD_NODE: Final = re.compile(r"/dev/(nvidia[0-9]+|nvidia-caps/nvidia-cap[0-9]+)").fullmatch
"""The device nodes of cards, and of MIG instances."""

_CARD_KIND: Final = re.compile(r"([a-z0-9-]+\.)*nvidia\.com/(gpu|mig)").fullmatch
"""The kinds of CDI devices that are cards, such as `nvidia.com/gpu` and `k8s.device-plugin.nvidia.com/gpu`."""


class DeviceNaming(NamedTuple):
    """How the runtime learns of a container's GPUs: by the environment, by CDI names of a kind, or both."""

    by_env: bool = True
    cdi_kind: str | None = None


def inject(config: ContainerConfig, gpus: ContainerGpus, naming: DeviceNaming) -> tuple[str, ...]:
    """Change the container in place; returns what was replaced, as `env NAME=VALUE` and the like."""
    replaced = (
        *_without_variables(config, gpus),
        *_without_cdi(config, naming),
        *_without_cdi_annotations(config, naming),
        *_without_nodes(config),
        *_without_mounts(config),
    )
    for name, value in gpus.variables.items():
        visible = value if naming.by_env or name != VISIBLE_DEVICES else HIDDEN
        config.envs.append(KeyValue(key=name, value=visible.encode()))
    if naming.cdi_kind is not None:
        config.CDI_devices.extend(CDIDevice(name=f"{naming.cdi_kind}={uuid}") for uuid in gpus.devices)
    return replaced


def _is_card(cdi_name: str, naming: DeviceNaming) -> bool:
    kind = cdi_name.strip().partition("=")[0]
    return kind == naming.cdi_kind or _CARD_KIND(kind) is not None


def _without_variables(config: ContainerConfig, gpus: ContainerGpus) -> list[str]:
    values = {one.key: one.value.decode(errors="replace") for one in config.envs if confines(one.key)}
    _take(config.envs, lambda one: one.key if confines(one.key) else None)
    return [f"env {name}={value}" for name, value in values.items() if gpus.variables.get(name) != value]


def _without_cdi(config: ContainerConfig, naming: DeviceNaming) -> list[str]:
    return _take(config.CDI_devices, lambda one: f"cdi {one.name}" if _is_card(one.name, naming) else None)


def _without_cdi_annotations(config: ContainerConfig, naming: DeviceNaming) -> Iterator[str]:
    for key in sorted(one for one in config.annotations if one.startswith(CDI_ANNOTATION_PREFIX)):
        devices = config.annotations[key].split(",")
        others = [one for one in devices if not _is_card(one, naming)]
        yield from (f"cdi {one.strip()}" for one in devices if _is_card(one, naming))
        if not others:
            del config.annotations[key]
        elif len(others) < len(devices):
            config.annotations[key] = ",".join(others)


def _without_nodes(config: ContainerConfig) -> list[str]:
    return _take(config.devices, lambda one: f"device {one.host_path}" if _is_of_card(one) else None)


def _without_mounts(config: ContainerConfig) -> list[str]:
    return _take(config.mounts, lambda one: f"mount {one.container_path}" if _is_of_card(one) else None)


def _is_of_card(given: Device | Mount) -> bool:
    paths = [f"/{posixpath.normpath(path).lstrip('/')}" for path in (given.host_path, given.container_path) if path]
    return any(_CARD_NODE(path) or path.startswith(VOLUME_MOUNTS) for path in paths)


def _take(field: Any, text_of: Callable[[Any], str | None]) -> list[str]:  # noqa: ANN401 - of any message
    """Take out of a repeated field what has a text; returns the texts. The others stay as they are, in their order."""
    texts = [text_of(one) for one in field]
    for number in reversed(range(len(texts))):
        if texts[number] is not None:
            del field[number]
    return [text for text in texts if text is not None]
