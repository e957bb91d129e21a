"""Reads the CRDs that the product ships, installs them, and compares those of a cluster with them.

Only CRDs in `schemas/crds` are ever installed; kinds that others own (`schemas/foreign`) are for API servers without
those others. This module must never delete a CRD, because all objects of its kind would go with it.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final, Literal, NamedTuple

import yaml

from gpuledger.api.kinds import CRDS, Resource, shared_devices
from gpuledger.api.sharing import DOMAIN, SharingNames
from gpuledger.edge.kube.client import KubeClient, KubeRequest, Object
from gpuledger.edge.kube.errors import CrdError, NotFoundError, TooManyRequestsError

ESTABLISHED_TIMEOUT_S: Final = 30.0
"""How long an API server may take until it serves a new kind."""

POLL_S: Final = 0.1

SERVER_DEFAULTS: Final = {"conversion": {"strategy": "None"}, "preserveUnknownFields": False}
"""Fields that a server adds to a CRD's spec; they are no difference."""

DEVICES: Final = shared_devices()

ABSENT: Final = None
"""The value of a side that has nothing there."""

Change = Literal["created", "configured", "unchanged"]
State = Literal["same", "different", "missing"]


class Installed(NamedTuple):
    """The outcome of installing a CRD."""

    name: str
    change: Change


class CrdDifference(NamedTuple):
    """A place where a cluster's CRD differs; `ABSENT` where a side has nothing there."""

    path: str
    shipped: object
    live: object


@dataclass(frozen=True, slots=True)
class Comparison:
    """How a cluster's CRD compares with the one that is shipped."""

    name: str
    state: State
    differences: tuple[CrdDifference, ...] = ()


def shipped(names: SharingNames = SharingNames()) -> tuple[Object, ...]:  # noqa: B008 - it is immutable
    """The CRDs of the product, by name; that of shared devices is under their domain."""
    found = (_named(one, names) if one["spec"]["group"] == DEVICES.group else one for one in _load("crds"))
    return tuple(sorted(found, key=lambda one: str(one["metadata"]["name"])))


def _named(part: Any, names: SharingNames) -> Any:  # noqa: ANN401 - JSON is any value
    """A part of the CRD of shared devices under a domain; in paths of fields its dots are escaped."""
    if isinstance(part, dict):
        return {key: _named(one, names) for key, one in part.items()}
    if isinstance(part, list):
        return [_named(one, names) for one in part]
    if not isinstance(part, str):
        return part
    escaped = names.domain.replace(".", r"\.")
    return part.replace(DEVICES.group, names.group).replace(rf"node\.{DOMAIN}/", rf"node\.{escaped}/")


def foreign() -> tuple[Object, ...]:
    """CRDs of kinds that others own, as far as the product uses them; for embedded API servers and tests."""
    return _load("foreign")


def node_feature_rule() -> Object:
    """The NodeFeatureRule that has Node Feature Discovery label GPUs."""
    (rule,) = (one for one in _load("manifests") if one["kind"] == "NodeFeatureRule")
    return rule


def component_daemon_sets() -> tuple[Object, ...]:
    """The DaemonSets of the components that prepare and monitor GPUs, without images and affinity."""
    return tuple(one for one in _load("manifests") if one["kind"] == "DaemonSet")


async def install(
    client: KubeClient,
    crds: Sequence[Object] | None = None,
    *,
    force: bool = False,
    timeout_s: float = ESTABLISHED_TIMEOUT_S,
) -> list[Installed]:
    """Apply the CRDs, and wait until the server serves them.

    Raises:
        ConflictError: somebody else owns a field; `force` takes it.
        CrdError: the server does not serve one of them in time.
    """
    given = shipped() if crds is None else crds
    installed = [await _applied(client, crd, force) for crd in given]
    for crd in given:
        await _served(client, crd, timeout_s)
    return installed


async def diff(client: KubeClient, crds: Sequence[Object] | None = None) -> list[Comparison]:
    """How the cluster's CRDs compare with the ones that are shipped."""
    return [await _compared(client, crd) for crd in (shipped() if crds is None else crds)]


def differences(crd: Object, live: Object) -> tuple[CrdDifference, ...]:
    """Where the spec of a live CRD differs from the shipped one."""
    expected = {key: value for key, value in SERVER_DEFAULTS.items() if live["spec"].get(key) == value} | crd["spec"]
    return tuple(_walk("spec", expected, live["spec"]))


async def _applied(client: KubeClient, crd: Object, force: bool) -> Installed:
    name = crd["metadata"]["name"]
    before = await _live(client, name)
    after = await client.apply(CRDS, crd, force=force)
    if before is None:
        return Installed(name, "created")
    same = before["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]
    return Installed(name, "unchanged" if same else "configured")


async def _compared(client: KubeClient, crd: Object) -> Comparison:
    name = crd["metadata"]["name"]
    live = await _live(client, name)
    if live is None:
        return Comparison(name, "missing")
    found = differences(crd, live)
    return Comparison(name, "different" if found else "same", found)


async def _live(client: KubeClient, name: str) -> Object | None:
    try:
        return await client.get(CRDS, name)
    except NotFoundError:
        return None


async def _served(client: KubeClient, crd: Object, timeout_s: float) -> None:
    name = crd["metadata"]["name"]
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                if await _is_served(client, name, crd):
                    return
                await asyncio.sleep(POLL_S)
    except TimeoutError as error:
        raise CrdError(
            f"{client.url} does not serve {name} after {timeout_s:g} s. "
            f"`kubectl describe crd {name}` says why; then install again."
        ) from error


async def _is_served(client: KubeClient, name: str, crd: Object) -> bool:
    live = await client.get(CRDS, name)
    conditions = {one["type"]: one for one in live.get("status", {}).get("conditions") or ()}
    names = conditions.get("NamesAccepted", {})
    if names.get("status") == "False":
        raise CrdError(
            f"{client.url} does not accept the names of {name}: {names.get('message')}. Remove the CRD that has them."
        )
    if conditions.get("Established", {}).get("status") != "True":
        return False
    return all([await _answers(client, resource) for resource in _resources(crd)])


async def _answers(client: KubeClient, resource: Resource) -> bool:
    """Whether the kind can be listed, which takes a moment after the CRD is established.

    Until its storage is ready a server answers that it has no such kind, or that the client should wait.
    """
    try:
        await client.send(KubeRequest(f"list {resource.full_name}", "GET", resource.path(), {"limit": "1"}))
    except (NotFoundError, TooManyRequestsError):
        return False
    return True


def _resources(crd: Object) -> Iterator[Resource]:
    spec = crd["spec"]
    for version in spec["versions"]:
        if version["served"]:
            names = spec["names"]
            yield Resource(spec["group"], version["name"], names["plural"], names["kind"], spec["scope"] != "Cluster")


def _walk(path: str, expected: object, live: object) -> Iterator[CrdDifference]:
    if isinstance(expected, dict) and isinstance(live, dict):
        for key in sorted(expected.keys() | live.keys()):
            yield from _walk(f"{path}.{key}", expected.get(key, ABSENT), live.get(key, ABSENT))
    elif isinstance(expected, list) and isinstance(live, list):
        for index in range(max(len(expected), len(live))):
            yield from _walk(f"{path}[{index}]", _at(expected, index), _at(live, index))
    elif expected != live:
        yield CrdDifference(path, expected, live)


def _at(items: list[object], index: int) -> object:
    return items[index] if index < len(items) else ABSENT


@cache
def _load(folder: str) -> tuple[Object, ...]:
    """All callers share the objects; nobody may change one."""
    found = (entry for entry in (files("gpuledger.schemas") / folder).iterdir() if entry.name.endswith(".yaml"))
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return tuple(
        yaml.load(entry.read_bytes(), Loader=loader)  # noqa: S506 - it is a safe one
        for entry in sorted(found, key=lambda entry: entry.name)
    )
