"""Who waits for a claim, and what else people mean by its name, by the objects that Kubernetes has now.

Kubernetes allocates a claim only for a pod that refers to it: a claim waits for its first consumer. Pods get claims in
three ways, and their names show two of them badly: a template makes a claim for each pod, and the scheduler makes one
for extended resources that a DeviceClass provides.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from gpuledger.api.kinds import DEVICE_CLASSES, PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from gpuledger.edge.kube.client import KubeClient, Object, Selection
from gpuledger.edge.kube.errors import RefusedError
from gpuledger.edge.kube.objects import items, mapping
from gpuledger.edge.watchers.resources.container_requests import ENDED
from gpuledger.tools.cluster import object_or_none

NO_CONSUMER: Final = "no pod refers to it, and Kubernetes allocates a claim only for a pod that does"
POD_ENTRY: Final = "resource.kubernetes.io/pod-claim-name"
"""The annotation of a claim that a template made: the entry of the pod that it was made for."""

FOR_EXTENDED_RESOURCE: Final = "resource.kubernetes.io/extended-resource-claim"
"""The annotation of a claim that the scheduler made for extended resources."""

IMPLICIT_RESOURCE: Final = "deviceclass.resource.kubernetes.io/"
"""The prefix of the extended resource that every DeviceClass has by its name."""

EXTENDED: Final = ""
"""Stands for an entry where a claim is for a pod's extended resources."""

SHOWN_MAX: Final = 3
"""Claims or pods that a sentence names."""


class ClaimUse(NamedTuple):
    """The claim's object, where there is one, and the pods that refer to it and have not ended."""

    object: Object | None
    consumers: tuple[str, ...]


class PodClaims(NamedTuple):
    """The claims that a pod has, by the entry that each is for (or EXTENDED), and the entries that have none yet."""

    claims: dict[str, str]
    missing: tuple[str, ...]


class Meant(NamedTuple):
    """What a name means that no claim has, and what to ask instead."""

    message: str
    hint: str


async def read_use(client: KubeClient, claim: str) -> ClaimUse:
    """How a claim is used now.

    Raises:
        KubeError: the objects cannot be read.
    """
    namespace, _, name = claim.partition("/")
    obj = await object_or_none(client, RESOURCE_CLAIMS, name, namespace)
    pods = (await client.list(PODS, Selection(namespace))).items
    return ClaimUse(obj, tuple(consumers_of(name, pods)))


async def read_meant(client: KubeClient, name: str) -> Meant | None:
    """What a name means that no claim has; None where nothing has that name.

    Raises:
        KubeError: the objects cannot be read.
    """
    namespace, _, bare = name.partition("/")
    if "." in namespace:
        classes = (await client.list(DEVICE_CLASSES)).items
        return resource_meant(name, classes)
    pods = (await client.list(PODS, Selection(namespace))).items
    template = await object_or_none(client, RESOURCE_CLAIM_TEMPLATES, bare, namespace)
    return template_meant(namespace, bare, pods) if template is not None else pod_meant(namespace, bare, pods)


async def read_classes(client: KubeClient, resources: Sequence[str]) -> dict[str, str]:
    """The DeviceClass of each of these extended resources that one provides; none, where they cannot be read."""
    try:
        classes = (await client.list(DEVICE_CLASSES)).items if resources else []
    except RefusedError:
        return {}
    return {resource: found for resource in resources if (found := class_of(resource, classes)) is not None}


def claims_of(pod: Object) -> PodClaims:
    """The claims that a Pod names, that templates made for it, and the scheduler for its extended resources."""
    status = mapping(pod, "status")
    made = {one.get("name"): one.get("resourceClaimName") for one in _mappings(status, "resourceClaimStatuses")}
    claims, missing = dict[str, str](), list[str]()
    for one in _mappings(mapping(pod, "spec"), "resourceClaims"):
        entry = one.get("name")
        if not isinstance(entry, str):
            continue
        if claim := one.get("resourceClaimName") or made.get(entry):
            claims[entry] = str(claim)
        elif entry not in made:  # made without a claim: none is needed
            missing.append(entry)
    if extended := mapping(status, "extendedResourceClaimStatus").get("resourceClaimName"):
        claims[EXTENDED] = str(extended)
    return PodClaims(claims, tuple(missing))


def consumers_of(claim: str, pods: Iterable[Object]) -> Iterator[str]:
    """The pods of the claim's namespace that refer to it and have not ended, by name."""
    for pod in pods:
        if mapping(pod, "status").get("phase") not in ENDED and claim in claims_of(pod).claims.values():
            yield _name(pod)


def origin_note(claim: Object) -> str | None:
    """Who made a claim that no person did."""
    annotations = mapping(claim, "metadata", "annotations")
    owners = (one for one in _mappings(mapping(claim, "metadata"), "ownerReferences") if one.get("kind") == "Pod")
    pod = next((str(one.get("name")) for one in owners), None)
    if annotations.get(FOR_EXTENDED_RESOURCE) == "true":
        return (
            f"The scheduler made this claim for the extended resources that {_pod(pod)} requests, and it goes with it."
        )
    if entry := annotations.get(POD_ENTRY):
        return f"A template made this claim for the entry {entry} of {_pod(pod)}, and it goes with the pod."
    return None


def unclaimed_resources(pod: Object) -> list[str]:
    """The extended resources that the pod's containers request; none, once the scheduler has made a claim for them."""
    if EXTENDED in claims_of(pod).claims:
        return []
    spec = mapping(pod, "spec")
    containers = [*_mappings(spec, "initContainers"), *_mappings(spec, "containers")]
    requested = (
        name
        for one in containers
        for part in ("limits", "requests")
        for name, amount in mapping(one, "resources", part).items()
        if "/" in name and str(amount) != "0"
    )
    return sorted(set(requested))


def class_of(resource: str, classes: Iterable[Object]) -> str | None:
    """The DeviceClass that provides an extended resource; None where none does."""
    names = {_name(one): mapping(one, "spec").get("extendedResourceName") for one in classes}
    explicit = sorted(name for name, provided in names.items() if provided == resource)
    implicit = resource.removeprefix(IMPLICIT_RESOURCE)
    if explicit:
        return explicit[0]
    return implicit if resource != implicit and implicit in names else None


def resource_meant(name: str, classes: Iterable[Object]) -> Meant | None:
    """An extended resource by whose name a claim was sought."""
    found = class_of(name, classes)
    if found is None:
        return None
    return Meant(
        f"{name} is an extended resource that DeviceClass {found} provides: the scheduler makes a claim for each pod "
        "that requests it, when it places the pod",
        "Ask `gpuledger why pod NAMESPACE/NAME` about the pod",
    )


def template_meant(namespace: str, template: str, pods: Iterable[Object]) -> Meant:
    """A ResourceClaimTemplate by whose name a claim was sought, and the claims that it made."""
    claims, waiting = list[str](), list[str]()
    for pod in pods:
        made = claims_of(pod).claims
        for one in _mappings(mapping(pod, "spec"), "resourceClaims"):
            if one.get("resourceClaimTemplateName") == template:
                claim = made.get(str(one.get("name")))
                (claims if claim else waiting).append(claim or _name(pod))
    message = f"{template} is a ResourceClaimTemplate, from which every pod gets a claim of its own"
    if claims:
        return Meant(message, f"Ask about one of them: {_listed(namespace, claims)}")
    if waiting:
        return Meant(f"{message}, and it has made none yet", f"Ask `gpuledger why pod {namespace}/{min(waiting)}`")
    return Meant(f"{message}, and no pod uses it", "Create a pod that does")


def pod_meant(namespace: str, name: str, pods: Iterable[Object]) -> Meant | None:
    """A pod, or the entry of a pod, by whose name a claim was sought."""
    listed = list(pods)
    if any(_name(pod) == name for pod in listed):
        return Meant(f"{name} is a Pod", f"Ask `gpuledger why pod {namespace}/{name}`")
    claims = [made for pod in listed if (made := claims_of(pod).claims.get(name)) is not None]
    if claims:
        return Meant(
            f"{name} is what pods call a claim of theirs", f"Ask about one of them: {_listed(namespace, claims)}"
        )
    return None


def _mappings(holder: object, key: str) -> list[Object]:
    return [dict(mapping(one)) for one in items(holder, key)]


def _name(obj: Object) -> str:
    return str(mapping(obj, "metadata").get("name"))


def _pod(name: str | None) -> str:
    return "a pod" if name is None else f"pod {name}"


def _listed(namespace: str, names: Iterable[str]) -> str:
    found = sorted(set(names))
    more = f" and {len(found) - SHOWN_MAX} more" if len(found) > SHOWN_MAX else ""
    return ", ".join(f"{namespace}/{one}" for one in found[:SHOWN_MAX]) + more
