"""Services, volumes, quotas and classes, as far as clients rely on them: their defaults, and what must be there.

No addresses are given out and no volumes are bound: nothing here does what a network or a storage driver would do.
"""

import re
from collections.abc import Iterator, Mapping

from gpuledger.edge.kube.schema.causes import Cause, Object, duplicate, forbidden, invalid, required
from gpuledger.edge.kube.schema.object_names import LABEL_MAX, dns_label_problem
from gpuledger.local.kubeapi.strategies.core_containers import PROTOCOLS, port_number_causes
from gpuledger.local.kubeapi.strategies.core_quantities import check_quantities, write_canonically
from gpuledger.local.kubeapi.strategies.core_resources import quantity_causes
from gpuledger.local.kubeapi.strategies.core_shared import (
    BuiltinStrategy,
    at,
    fill,
    immutable,
    one_of,
    part_of,
)

SERVICE_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
RECLAIM_POLICIES = ("Delete", "Recycle", "Retain")
SESSION_TIMEOUT_S = 10800
USER_PRIORITY_MAX = 1_000_000_000
_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LIMITS = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")


class ServiceStrategy(BuiltinStrategy):
    """The behaviour of services, without addresses."""

    has_generation = False
    creates_on_update = True
    answers_deleted_object = True
    status_on_create = {"loadBalancer": {}}

    def default(self, obj: Object) -> None:
        """Fill in type, affinity and ports."""
        spec = part_of(obj, "spec")
        fill(spec, {"type": "ClusterIP", "sessionAffinity": "None"})
        if spec["sessionAffinity"] == "ClientIP":
            fill(spec, {"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": SESSION_TIMEOUT_S}}})
        if spec["type"] != "ExternalName":
            fill(spec, {"internalTrafficPolicy": "Cluster"})
        if spec["type"] in {"NodePort", "LoadBalancer"}:
            fill(spec, {"externalTrafficPolicy": "Cluster"})
        for port in spec.get("ports") or ():
            fill(port, {"protocol": "TCP"})
            fill(port, {"targetPort": port.get("port")})
        if spec.get("clusterIP"):
            fill(spec, {"clusterIPs": [spec["clusterIP"]]})
        super().default(obj)

    def validate(self, obj: Object) -> list[Cause]:
        """What is wrong with a service."""
        spec = at(obj, "spec")
        causes = [*one_of(spec.get("type"), SERVICE_TYPES, "spec.type")]
        causes += one_of(spec.get("sessionAffinity"), ("ClientIP", "None"), "spec.sessionAffinity")
        ports = spec.get("ports") or []
        if not ports and spec.get("type") != "ExternalName" and spec.get("clusterIP") != "None":
            causes.append(required("spec.ports"))
        if spec.get("type") == "ExternalName" and not spec.get("externalName"):
            causes.append(required("spec.externalName"))
        return [*causes, *_port_causes(ports)]

    def validate_name(self, name: str) -> str | None:
        """A service's name is an RFC 1035 label."""
        if len(name) > LABEL_MAX or not _DNS_1035.fullmatch(name):
            return "a DNS-1035 label must consist of lower case alphanumeric characters or '-', and start with a letter"
        return None

    def field_labels(self, obj: Object) -> Mapping[str, str]:
        """What field selectors of services see."""
        spec = at(obj, "spec")
        return {"spec.clusterIP": spec.get("clusterIP") or "", "spec.type": spec.get("type") or ""}

    def field_names(self) -> frozenset[str]:
        """Which names field selectors of services may use."""
        return frozenset({"spec.clusterIP", "spec.type"})


class EndpointsStrategy(BuiltinStrategy):
    """The behaviour of endpoints."""

    has_generation = False
    creates_on_update = True

    def default(self, obj: Object) -> None:
        """Ports speak TCP."""
        for subset in obj.get("subsets") or ():
            for port in subset.get("ports") or ():
                fill(port, {"protocol": "TCP"})
        super().default(obj)


class AmountsStrategy(BuiltinStrategy):
    """A type without generation that has quantities somewhere."""

    has_generation = False
    kind = ""

    def amounts(self, obj: Object) -> Iterator[Object]:
        """The maps whose values are quantities."""
        yield from ()

    def decode(self, body: Object) -> None:
        """Refuse quantities that are none (400)."""
        check_quantities(self.amounts(body), self.kind, "v1")

    def default(self, obj: Object) -> None:
        """Write quantities canonically."""
        write_canonically(self.amounts(obj))
        super().default(obj)


class VolumeClaimStrategy(AmountsStrategy):
    """The behaviour of persistent volume claims."""

    kind = "PersistentVolumeClaim"
    answers_deleted_object = True
    status_on_create = {"phase": "Pending"}

    def amounts(self, obj: Object) -> Iterator[Object]:
        """Requested, limited, and provided storage."""
        yield from (at(obj, "spec", "resources", name) for name in ("requests", "limits"))
        yield from (at(obj, "status", name) for name in ("capacity", "allocatedResources"))

    def default(self, obj: Object) -> None:
        """A claim is for a file system."""
        fill(part_of(obj, "spec"), {"volumeMode": "Filesystem", "resources": {}})
        super().default(obj)

    def validate(self, obj: Object) -> list[Cause]:
        """What is wrong with a claim."""
        spec = at(obj, "spec")
        causes = [*_access_causes(spec)]
        storage = at(spec, "resources", "requests").get("storage")
        field = "spec.resources[storage]"
        return [*causes, *quantity_causes("storage", storage, field)] if storage else [*causes, required(field)]

    def validate_update(self, obj: Object, old: Object, subresource: str) -> list[Cause]:
        """Only what is requested may change, and the volume once."""
        if subresource:
            return []
        spec, before = (
            {
                key: value
                for key, value in at(one, "spec").items()
                if key not in {"resources", "volumeAttributesClassName"}
            }
            for one in (obj, old)
        )
        if not before.get("volumeName"):
            spec.pop("volumeName", None)
        causes = self.validate(obj)
        if spec != before:
            text = "spec is immutable after creation except resources.requests and volumeAttributesClassName"
            causes.append(forbidden("spec", text))
        return causes


class VolumeStrategy(AmountsStrategy):
    """The behaviour of persistent volumes."""

    kind = "PersistentVolume"
    answers_deleted_object = True
    status_on_create = {"phase": "Pending"}

    def amounts(self, obj: Object) -> Iterator[Object]:
        """What the volume holds."""
        yield at(obj, "spec", "capacity")

    def default(self, obj: Object) -> None:
        """A volume holds a file system, and outlives its claim."""
        fill(part_of(obj, "spec"), {"volumeMode": "Filesystem", "persistentVolumeReclaimPolicy": "Retain"})
        super().default(obj)

    def validate(self, obj: Object) -> list[Cause]:
        """What is wrong with a volume."""
        spec = at(obj, "spec")
        causes = [*_access_causes(spec)]
        if not at(spec, "capacity").get("storage"):
            causes.append(required("spec.capacity"))
        policy = spec.get("persistentVolumeReclaimPolicy")
        return [*causes, *one_of(policy, RECLAIM_POLICIES, "spec.persistentVolumeReclaimPolicy")]


class ResourceQuotaStrategy(AmountsStrategy):
    """The behaviour of resource quotas."""

    kind = "ResourceQuota"
    answers_deleted_object = True
    status_on_create: Mapping[str, object] | None = {}

    def amounts(self, obj: Object) -> Iterator[Object]:
        """What is allowed and what is used."""
        yield from (at(obj, "spec", "hard"), at(obj, "status", "hard"), at(obj, "status", "used"))

    def default(self, obj: Object) -> None:
        """A quota has a spec."""
        fill(obj, {"spec": {}})
        super().default(obj)


class LimitRangeStrategy(AmountsStrategy):
    """The behaviour of limit ranges, which nobody enforces here."""

    kind = "LimitRange"
    creates_on_update = True

    def amounts(self, obj: Object) -> Iterator[Object]:
        """Every bound."""
        for limit in at(obj, "spec").get("limits") or ():
            yield from (limit.get(name) or {} for name in _LIMITS)

    def default(self, obj: Object) -> None:
        """A default limit is the maximum, a default request the default limit."""
        for limit in at(obj, "spec").get("limits") or ():
            if limit.get("type") == "Container":
                limit["default"] = (limit.get("max") or {}) | (limit.get("default") or {})
                least = (limit.get("min") or {}) | limit["default"]
                limit["defaultRequest"] = least | (limit.get("defaultRequest") or {})
        super().default(obj)


class PriorityClassStrategy(BuiltinStrategy):
    """The behaviour of priority classes."""

    def default(self, obj: Object) -> None:
        """A class may preempt, and has some value."""
        fill(obj, {"preemptionPolicy": "PreemptLowerPriority", "value": 0})
        super().default(obj)

    def validate(self, obj: Object) -> list[Cause]:
        """Names and values of the system are not for users."""
        name, value = at(obj, "metadata").get("name") or "", obj.get("value") or 0
        causes = []
        if name.startswith("system-"):
            causes.append(forbidden("metadata.name", "priority class names with 'system-' prefix are reserved"))
        if value > USER_PRIORITY_MAX:
            causes.append(
                forbidden("value", f"maximum allowed value of a user defined priority is {USER_PRIORITY_MAX}")
            )
        return [*causes, *one_of(obj.get("preemptionPolicy"), ("PreemptLowerPriority", "Never"), "preemptionPolicy")]

    def validate_update(self, obj: Object, old: Object, subresource: str) -> list[Cause]:
        """Value and preemption stay."""
        changed = (name for name in ("value", "preemptionPolicy") if obj.get(name) != old.get(name))
        return [forbidden(name, "may not be changed in an update.") for name in changed]

    def spec_changed(self, obj: Object, old: Object) -> bool:
        """Its generation stays 1."""
        return False


class StorageClassStrategy(BuiltinStrategy):
    """The behaviour of storage classes."""

    has_generation = False
    answers_deleted_object = True

    def default(self, obj: Object) -> None:
        """Volumes go with their claims, and are bound at once."""
        fill(obj, {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"})
        super().default(obj)

    def validate(self, obj: Object) -> list[Cause]:
        """What is wrong with a class."""
        causes = [] if obj.get("provisioner") else [required("provisioner")]
        modes = ("Immediate", "WaitForFirstConsumer")
        return [
            *causes,
            *one_of(obj.get("reclaimPolicy"), RECLAIM_POLICIES, "reclaimPolicy"),
            *one_of(obj.get("volumeBindingMode"), modes, "volumeBindingMode"),
        ]

    def validate_update(self, obj: Object, old: Object, subresource: str) -> list[Cause]:
        """How volumes are made does not change."""
        fixed = ("parameters", "provisioner", "reclaimPolicy")
        causes = [forbidden(name, "updates are forbidden.") for name in fixed if obj.get(name) != old.get(name)]
        return [*causes, *immutable(obj, old, ("volumeBindingMode",))]


def _access_causes(spec: Object) -> Iterator[Cause]:
    modes = spec.get("accessModes") or []
    if not modes:
        yield required("spec.accessModes", "at least 1 access mode is required")
    for mode in modes:
        yield from one_of(mode, ACCESS_MODES, "spec.accessModes")


def _port_causes(ports: list[Object]) -> Iterator[Cause]:
    names: set[str] = set()
    for index, port in enumerate(ports):
        field, name = f"spec.ports[{index}]", port.get("name") or ""
        if not name and len(ports) > 1:
            yield required(f"{field}.name")
        elif name and (problem := dns_label_problem(name)):
            yield invalid(f"{field}.name", name, problem)
        elif name in names:
            yield duplicate(f"{field}.name", name)
        names.add(name)
        if not port.get("port"):
            yield invalid(f"{field}.port", port.get("port") or 0, "must be between 1 and 65535, inclusive")
        yield from port_number_causes(port.get("port"), f"{field}.port")
        yield from one_of(port.get("protocol"), PROTOCOLS, f"{field}.protocol")
