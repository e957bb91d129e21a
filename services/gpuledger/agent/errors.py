"""What can go wrong with an agent and with what it looks at; only those of its own folder end it.

AgentError
├── MonitoringError    the exporter's metrics cannot be had, or do not say when they were brought up to date
├── ControlError       nobody injects that fault
└── KubeletError       the kubelet, or a socket of its folder; see `gpuledger.agent.errors`

What goes wrong with cards is in `gpuledger.agent.hardware.errors`.
"""


class AgentError(Exception):
    """Something that the agent needs or looks at cannot be had."""


class MonitoringError(AgentError):
    """The exporter's metrics cannot be had, or do not say when they were brought up to date."""


class ControlError(AgentError):
    """Nobody injects that fault; the message says why."""


class KubeletError(AgentError):
    """The agent and its kubelet did not come together."""


class KubeletAwayError(KubeletError):
    """Nobody answers on the kubelet's socket, or not in time."""


class KubeletRefusedError(KubeletError):
    """The kubelet answers, and does not do what it was asked to."""


class SocketError(KubeletError):
    """A socket of the agent's own cannot be made, or a folder of sockets cannot be read."""


class AllocationError(KubeletError):
    """A container cannot get what the kubelet asks for."""


class UnknownUnitError(AllocationError):
    """There are no such units, or none were named."""


class CdiError(AllocationError):
    """No CDI specification names the devices, so that no runtime could hand them over."""
