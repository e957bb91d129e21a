"""The init container of a check, as every API server would answer it: each default is spelt out. Pure.

So a container that another API server or webhook hands back is compared field by field, and one that a pod brings along
under the name of a check is found out. It has no rights, and requests nothing that makes the pod larger or takes its
class of quality of service away.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import orjson

from gpuledger.api.preflight import GANG_PATH, CheckName, Variable, check_container
from gpuledger.edge.kube.objects import items, mapping
from gpuledger.edge.preflight.configuration import Check, PreflightConfiguration
from gpuledger.edge.preflight.connection import Connection
from gpuledger.edge.preflight.devices import Devices, PodContainers
from gpuledger.edge.preflight.nccl import NcclSettings
from gpuledger.edge.preflight.sizes import compute_resources
from gpuledger.edge.webhooks.serving.review import Object

GANG_VOLUME: Final = "gpuledger-gang"
LOCKING: Final = "IPC_LOCK"

_FIELDS: Final = (
    (Variable.POD_NAME, "metadata.name"),
    (Variable.POD_NAMESPACE, "metadata.namespace"),
    (Variable.POD_UID, "metadata.uid"),
    (Variable.POD_IP, "status.podIP"),
    (Variable.NODE_NAME, "spec.nodeName"),
)


class Surroundings(NamedTuple):
    """What a pod has for its checks; `gang_volume` is the name of the volume with the ConfigMap of its gang, if any."""

    pod: Object
    containers: PodContainers
    gpus: Devices
    networks: Devices
    nccl: NcclSettings
    connection: Connection
    gang_volume: str | None


def container_of(check: Check, around: Surroundings, configuration: PreflightConfiguration) -> dict[str, Any]:
    """The init container of a check."""
    networks = around.networks if check.has_network else Devices({}, ())
    mounts = [around.connection.mount]
    if check.is_for_gangs and around.gang_volume is not None:
        mounts.append({"name": around.gang_volume, "mountPath": GANG_PATH, "readOnly": True})
    if check.has_network:
        mounts += _beside(around.nccl.mounts, mounts)
    command = [*check.command] or (["gpuledger", "preflight", "run", check.name] if check.is_own else [])
    given = {
        "name": check_container(check.name),
        "image": check.image,
        "command": command,
        "args": [*check.args],
        "env": _env(check, around, configuration),
        "resources": _resources(check, around, networks),
        "volumeMounts": mounts,
    }
    return {name: value for name, value in given.items() if value} | {
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": check.image_pull_policy,
        "securityContext": _security(around, locks_memory=bool(networks) and _locks_memory(around)),
    }


def _beside(more: Sequence[dict[str, Any]], mounts: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The mounts that do not take the place of our own."""
    taken = {mount["mountPath"] for mount in mounts}
    return [mount for mount in more if str(mount["mountPath"]).rstrip("/") not in taken]


def _env(check: Check, around: Surroundings, configuration: PreflightConfiguration) -> list[dict[str, Any]]:
    """Its own variables before those of the workload, which never take the place of one of them."""
    values = dict(_values(check, configuration))
    values |= {one.name: one.value for one in check.env}
    values |= dict(around.connection.env)
    fields: list[dict[str, Any]] = [
        {"name": str(name), "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
        for name, path in _FIELDS
    ]
    own = fields + [{"name": str(name)} | ({"value": value} if value else {}) for name, value in values.items()]
    taken = {one["name"] for one in own}
    copied = around.nccl.env if check.has_network else ()
    return [*own, *(one for one in copied if one["name"] not in taken)]


def _values(check: Check, configuration: PreflightConfiguration) -> Iterator[tuple[str, str]]:
    yield Variable.STRATEGY, check.processing_strategy or configuration.processing_strategy
    yield Variable.CHECK_TIMEOUT, configuration.check_timeout
    if check.is_own:
        yield Variable.NOT_RUN, (check.not_run or configuration.not_run).value
    if check.is_for_gangs:
        yield Variable.GANG_TIMEOUT, configuration.gang_timeout
        yield Variable.GANG_PATH, GANG_PATH
    yield from _of_own(check, configuration)


def _of_own(check: Check, configuration: PreflightConfiguration) -> Iterator[tuple[str, str]]:
    """What only a check of ours reads."""
    dcgm, nccl = configuration.dcgm, configuration.nccl
    match check.name:
        case CheckName.DCGM_DIAG:
            yield Variable.DIAG_LEVEL, str(dcgm.diag_level)
            yield from [(Variable.HOSTENGINE, dcgm.hostengine_addr)] if dcgm.hostengine_addr else []
        case CheckName.NCCL_LOOPBACK:
            yield Variable.LOOPBACK_THRESHOLD, str(nccl.loopback_threshold_gbps)
            yield from _topology(configuration)
        case CheckName.NCCL_ALLREDUCE:
            yield Variable.ALLREDUCE_THRESHOLD, str(nccl.allreduce_threshold_gbps)
            yield from _topology(configuration)
        case CheckName.BANDWIDTH:
            yield Variable.BANDWIDTH_THRESHOLD, str(configuration.bandwidth.threshold_gbps)


def _topology(configuration: PreflightConfiguration) -> Iterator[tuple[str, str]]:
    topology = configuration.nccl_topology
    mapped = orjson.dumps(dict(topology.instance_type_mapping), option=orjson.OPT_SORT_KEYS).decode()
    yield Variable.TOPOLOGY_MAPPING, mapped
    yield Variable.TOPOLOGY_FALLBACK, "true" if topology.enable_fallback else "false"
    if topology.directory:
        yield Variable.TOPOLOGY_FOLDER, topology.directory


def _resources(check: Check, around: Surroundings, networks: Devices) -> dict[str, Any]:
    """Devices in requests and limits alike, and a little processor time and memory."""
    amounts = {**around.gpus.amounts, **networks.amounts}
    requests, limits = compute_resources(check.resources, around.containers, mapping(around.pod, "spec", "resources"))
    claims = [{"name": name} for name in dict.fromkeys((*around.gpus.claims, *networks.claims))]
    given = {"limits": {**limits, **amounts}, "requests": {**requests, **amounts}, "claims": claims}
    return {name: value for name, value in given.items() if value}


def _security(around: Surroundings, *, locks_memory: bool) -> dict[str, Any]:
    """No rights but to lock memory where the pod may; without root where the whole pod is, as its namespace may demand.

    Of processes that are not root the kernel takes what capabilities are added.
    """
    context: dict[str, Any] = {
        "capabilities": {"drop": ["ALL"], **({"add": [LOCKING]} if locks_memory else {})},
        "privileged": False,
        "allowPrivilegeEscalation": False,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    containers = around.containers.all
    user = _effective(containers[0], around.pod, "runAsUser") if containers else None
    if all(_effective(one, around.pod, "runAsNonRoot") is True for one in containers):
        context["runAsNonRoot"] = True
        if isinstance(user, int) and user > 0:
            context["runAsUser"] = user
    elif locks_memory and not user:
        context["runAsUser"] = 0
    return context


def _locks_memory(around: Surroundings) -> bool:
    """Whether a container of the pod may lock memory, without which RDMA cannot register any."""
    contexts = [mapping(one, "securityContext") for one in around.containers.all]
    return any(one.get("privileged") is True or LOCKING in items(one, "capabilities", "add") for one in contexts)


def _effective(container: Object, pod: Object, field: str) -> object:
    own = mapping(container, "securityContext")
    return own[field] if field in own else mapping(pod, "spec", "securityContext").get(field)
