"""What a cluster has, by kind and name, to find what a release leaves behind."""

from typing import Final

from cluster.tools import Tools

COMES_AND_GOES: Final = (
    "bindings",
    "componentstatuses",
    "controllerrevisions.apps",
    "endpoints",
    "endpointslices.discovery.k8s.io",
    "events",
    "events.events.k8s.io",
    "leases.coordination.k8s.io",
    "nodes.metrics.k8s.io",
    "pods.metrics.k8s.io",
)
"""What clusters make and remove by themselves."""

NAMES: Final = '{range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name}{"\\n"}{end}'


def inventory(tools: Tools) -> set[str]:
    """Every object as `Kind namespace/name`."""
    listed = tools.kubectl("api-resources", "--verbs=list", "--output=name").split()
    kinds = sorted(set(listed) - set(COMES_AND_GOES))
    names = tools.kubectl("get", ",".join(kinds), "--all-namespaces", "--output", f"jsonpath={NAMES}")
    return {line.strip() for line in names.splitlines() if line.strip()}
