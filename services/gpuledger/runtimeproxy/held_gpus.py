"""Finds the GPUs that a running container has, in what the runtime says about it when asked for details. Pure.

Containers of before sharing say it in no object of Kubernetes (seed 002, 4.4, hot update). NVIDIA's device plugin names
GPUs by variable, mount or CDI name; only UUIDs count, since nobody can tell later which card an index meant.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import orjson

from gpuledger.domain.sharing.container_env import VISIBLE_DEVICES
from gpuledger.runtimeproxy.injection import CDI_ANNOTATION_PREFIX, VOLUME_MOUNTS

INFO: Final = "info"
"""The key of a container's details in an answer to `ContainerStatus`, with containerd and CRI-O."""

_UUID: Final = re.compile(r"(GPU|MIG)-[0-9A-Za-z/-]{1,240}").fullmatch


def held_gpus(info: Mapping[str, str]) -> tuple[str, ...]:
    """The UUIDs of the GPUs and MIG instances that a container has, each once; none where the details are unreadable.

    The runtime's own specification has the variables as the container sees them, those of its image included.
    """
    try:
        details = orjson.loads(info.get(INFO, "{}"))
    except orjson.JSONDecodeError:
        return ()
    spec, config = _object(details, "runtimeSpec"), _object(details, "config")
    named = (*_by_variable(spec), *_by_mount(spec), *_by_cdi(config))
    return tuple(dict.fromkeys(name for name in named if _UUID(name)))


def _by_variable(spec: Mapping[str, Any]) -> list[str]:
    """The last one of a name counts, as for a process."""
    value = ""
    for one in _list(_object(spec, "process"), "env"):
        name, equals, text = str(one).partition("=")
        if equals and name == VISIBLE_DEVICES:
            value = text
    return [one.strip() for one in value.split(",")]


def _by_mount(spec: Mapping[str, Any]) -> Iterator[str]:
    for one in _list(spec, "mounts"):
        destination = str(one.get("destination", "")) if isinstance(one, dict) else ""
        if destination.startswith(VOLUME_MOUNTS):
            yield destination.removeprefix(VOLUME_MOUNTS)


def _by_cdi(config: Mapping[str, Any]) -> Iterator[str]:
    names = [str(one.get("name", "")) for one in _list(config, "CDI_devices") if isinstance(one, dict)]
    names += _in_annotations(_object(config, "annotations"))
    for name in names:
        kind, _, device = name.strip().partition("=")
        if kind.endswith(("nvidia.com/gpu", "nvidia.com/mig")):
            yield device


def _in_annotations(annotations: Mapping[str, Any]) -> Iterable[str]:
    for key, value in annotations.items():
        if key.startswith(CDI_ANNOTATION_PREFIX):
            yield from str(value).split(",")


def _object(value: object, key: str) -> Mapping[str, Any]:
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def _list(value: Mapping[str, Any], key: str) -> list[Any]:
    found = value.get(key)
    return found if isinstance(found, list) else []
