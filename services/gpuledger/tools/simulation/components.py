"""What prepares a simulated node's GPUs and watches over them: the DaemonSets of which every node has a pod. Data."""

from typing import Final, NamedTuple

from gpuledger.api.labels import COMPONENT_BY_APP

_APP: Final = {component: app for app, component in COMPONENT_BY_APP.items()}


class Component(NamedTuple):
    """A DaemonSet, and how many simulated seconds after its node came up its pod is ready."""

    app: str
    ready_after_s: float
    init_containers: tuple[str, ...] = ()


NODE_AGENT: Final = Component(_APP["node-agent"], 5.0)
VALIDATOR: Final = Component(_APP["validator"], 20.0, ("driver-validation", "toolkit-validation", "cuda-validation"))
FEATURE_DISCOVERY: Final = Component(_APP["gfd"], 25.0)
DCGM: Final = Component(_APP["dcgm"], 30.0)
EXPORTER: Final = Component(_APP["dcgm-exporter"], 35.0)
COMPONENTS: Final = (NODE_AGENT, VALIDATOR, FEATURE_DISCOVERY, DCGM, EXPORTER)
"""In the order in which they become ready."""
