"""Pods that request units of pools. A pod's id is `<namespace>/<name>`."""

from typing import Annotated

from pydantic import Field

from gpuledger.events.payload import Count, Name, Payload
from gpuledger.events.publishing import BY_WATCHERS
from gpuledger.events.registry import registry

RESOURCES_MAX = 64


@registry.event("pod", "observed", BY_WATCHERS)
class PodObserved(Payload):
    """A pod that requests units of pools, and its node. Replaces the previous event. A pod that has ended is gone."""

    uid: Name
    node: Name | None = None
    requests: Annotated[dict[Name, Count], Field(max_length=RESOURCES_MAX)] = {}


@registry.event("pod", "gone", BY_WATCHERS)
class PodGone(Payload):
    """The pod has ended, or its object is gone."""

    uid: Name | None = None
