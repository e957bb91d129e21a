"""What can go wrong between the agent and its node's kubelet; none of it ends the agent.

KubeletError
├── KubeletAwayError       nobody answers on the kubelet's socket, or not in time
├── KubeletRefusedError    the kubelet answers, and does not do what it was asked to
├── SocketError            a socket of the agent's own cannot be made, or a folder of sockets cannot be read
└── AllocationError        a container cannot get what the kubelet asks for
    ├── UnknownUnitError   there are no such units, or none were named
    └── CdiError           no CDI specification names the devices, so that no runtime could hand them over
"""

from gpuledger.agent.errors import AgentError


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
