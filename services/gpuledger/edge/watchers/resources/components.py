"""Pods of the components that prepare and monitor a node's GPUs, as facts: which run, and how far they are. Pure.

All pods of components on a node make one fact, in the order of their namespaces and names.
"""

import orjson

from gpuledger.api.kinds import PODS
from gpuledger.api.labels import COMPONENT_BY_APP, COMPONENT_BY_APP_NAME, LABEL_APP, LABEL_APP_NAME
from gpuledger.edge.kube.objects import mapping
from gpuledger.edge.watchers.decide import Object, ObjectPart, WatchedKind
from gpuledger.edge.watchers.fields import key_of, name_of, packed, skipped, subject_text, text
from gpuledger.edge.watchers.resources.pod_progress import progress_of
from gpuledger.events.node import COMPONENT_PODS_MAX, ComponentPod, NodeComponentsObserved


def read(obj: Object) -> ObjectPart:
    """The relevant content of a component's Pod; one without a node is skipped."""
    labels = mapping(obj, "metadata", "labels")
    component = COMPONENT_BY_APP.get(text(labels.get(LABEL_APP)) or "")
    component = component or COMPONENT_BY_APP_NAME.get(text(labels.get(LABEL_APP_NAME)) or "")
    node, name = subject_text(text(mapping(obj, "spec").get("nodeName"))), name_of(obj)
    if component is None or node is None or name is None:
        return skipped(obj)
    content = {"component": component, "pod": name, **progress_of(obj)._asdict()}
    return ObjectPart(key_of(obj), node, packed(content))


def merge(parts: list[bytes]) -> NodeComponentsObserved:
    """The payload: the first pods, one after another."""
    pods = [ComponentPod.model_validate(orjson.loads(part)) for part in parts[:COMPONENT_PODS_MAX]]
    return NodeComponentsObserved(pods=tuple(pods))


def kind(namespace: str) -> WatchedKind[NodeComponentsObserved]:
    """The components' pods in one namespace; no selector of labels finds either of two labels, so all are read."""
    return WatchedKind(
        "components", PODS, NodeComponentsObserved, NodeComponentsObserved, read, merge, namespace=namespace
    )
