"""Pods of the components as facts: what prepares a node's GPUs and watches over them, and how far it is. Pure.

All pods of components on a node are one fact together, in the order of their namespaces and names.
"""

import orjson

from gpuledger.api.kinds import PODS
from gpuledger.api.labels import COMPONENT_BY_APP, LABEL_APP
from gpuledger.edge.watchers.decide import Kind, Object, Part
from gpuledger.edge.watchers.reading import key_of, mapping, name_of, packed, subject_text, text
from gpuledger.edge.watchers.resources.pod_progress import progress_of
from gpuledger.events.node import COMPONENT_PODS_MAX, ComponentPod, NodeComponentsObserved


def read(obj: Object) -> Part:
    """What matters of a component's Pod; one that has no node yet says nothing."""
    app = text(mapping(obj, "metadata", "labels").get(LABEL_APP))
    component = COMPONENT_BY_APP.get(app or "")
    node, name = subject_text(text(mapping(obj, "spec").get("nodeName"))), name_of(obj)
    if component is None or node is None or name is None:
        return Part(key_of(obj), None, b"")
    said = {"component": component, "pod": name, **progress_of(obj)._asdict()}
    return Part(key_of(obj), node, packed(said))


def combine(parts: list[bytes]) -> NodeComponentsObserved:
    """The payload: the first pods, one after another."""
    pods = [ComponentPod.model_validate(orjson.loads(part)) for part in parts[:COMPONENT_PODS_MAX]]
    return NodeComponentsObserved(pods=tuple(pods))


def farewell(_uid: str | None) -> NodeComponentsObserved:
    """What says that the node has no component's pod any more."""
    return NodeComponentsObserved()


def kind(namespace: str) -> Kind:
    """The kind, whose pods lie in one namespace."""
    return Kind(
        name="components",
        resource=PODS,
        aggregate=NodeComponentsObserved.AGGREGATE,
        read=read,
        combine=combine,
        farewell=farewell,
        namespace=namespace,
        labels=f"{LABEL_APP} in ({','.join(COMPONENT_BY_APP)})",
    )
