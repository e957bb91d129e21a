"""Fills in the defaults of a pod's spec, be it a pod's own or a workload's template, in place."""

from collections.abc import Iterator

from gpuledger.edge.kube.schema.causes import Object
from gpuledger.local.kubeapi.strategies.core_shared import at, fill

GRACE_PERIOD_S = 30
CONTAINER_LISTS = ("initContainers", "containers", "ephemeralContainers")
_SPEC = {
    "restartPolicy": "Always",
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "terminationGracePeriodSeconds": GRACE_PERIOD_S,
}
_CONTAINER = {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}


def default_pod_spec(spec: Object) -> None:
    """Fill in the defaults that templates and pods share."""
    fill(spec, {**_SPEC, "securityContext": {}})
    if account := spec.get("serviceAccountName") or spec.get("serviceAccount"):
        spec |= {"serviceAccountName": account, "serviceAccount": account}
    for container in _containers(spec):
        pull_policy = image_pull_policy(container.get("image") or "")
        fill(container, {**_CONTAINER, "imagePullPolicy": pull_policy, "resources": {}})
        for port in container.get("ports") or ():
            fill(port, {"protocol": "TCP"})


def default_pod(spec: Object) -> None:
    """Fill in the defaults of a pod's own spec: those of a template, and requests where only limits are given."""
    default_pod_spec(spec)
    fill(spec, {"enableServiceLinks": True})
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        if limits := at(container, "resources", "limits"):
            container["resources"]["requests"] = limits | (container["resources"].get("requests") or {})


def image_pull_policy(image: str) -> str:
    """`Always` for an image that moves (no tag, or `latest`), else `IfNotPresent`."""
    without_digest, at_sign, _ = image.partition("@")
    tag = without_digest.rpartition("/")[2].partition(":")[2]
    moves = bool(image) and (tag == "latest" or (not tag and not at_sign))
    return "Always" if moves else "IfNotPresent"


def _containers(spec: Object) -> Iterator[Object]:
    for name in CONTAINER_LISTS:
        yield from spec.get(name) or ()
