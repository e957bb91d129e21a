"""Refuses privileged containers, in pods and in what makes pods, where the server does not allow them. Pure."""

from collections.abc import Iterator

from gpuledger.edge.kube.schema.causes import Cause, Object, forbidden
from gpuledger.local.kubeapi.strategies.core_shared import at
from gpuledger.local.kubeapi.strategies.core_workloads import JOB_TEMPLATE, TEMPLATE

_SPECS = {
    ("", "pods"): ("spec",),
    ("apps", "daemonsets"): ("spec", *TEMPLATE),
    ("apps", "deployments"): ("spec", *TEMPLATE),
    ("apps", "statefulsets"): ("spec", *TEMPLATE),
    ("batch", "jobs"): ("spec", *TEMPLATE),
    ("batch", "cronjobs"): ("spec", *JOB_TEMPLATE),
}
"""Where each resource has the spec of a pod."""

_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")


def privilege_causes(key: tuple[str, str], obj: Object) -> Iterator[Cause]:
    """A cause for each privileged container of an object of the resource (group and plural)."""
    path = _SPECS.get(key, ())
    spec = at(obj, *path) if path else {}
    for part in _CONTAINERS:
        for index, container in enumerate(spec.get(part) or ()):
            if at(container, "securityContext").get("privileged"):
                field = f"{'.'.join(path)}.{part}[{index}].securityContext.privileged"
                yield forbidden(field, "disallowed by cluster policy")
