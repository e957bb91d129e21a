"""The agent's errors at its edges: exporter, control socket and kubelet. None of them ends the agent.

AgentError
├── MonitoringError           the exporter does not respond, or its metrics have no time of their last update
├── ControlError              the control socket took no fault
└── KubeletError              the kubelet, or a socket in its folder
    ├── KubeletAwayError      the kubelet's socket does not respond, or not in time
    ├── KubeletRefusedError   the kubelet responds with an error
    ├── SocketError           the agent cannot make its own socket, or read the folder of sockets
    └── AllocationError       the agent cannot allocate what the kubelet requests
        ├── UnknownUnitError  the request names unknown units, or none
        ├── NoShareError      nobody can tell which pod the request is for
        └── CdiError          no CDI specification names the devices, so that no runtime could inject them

Errors of the cards are in `gpuledger.agent.hardware.errors`, those of the outbox in `gpuledger.agent.outbox.errors`,
and why a report of a health monitor is refused in `gpuledger.healthreports.errors`.
"""


class AgentError(Exception):
    """Something outside the agent failed."""


class MonitoringError(AgentError):
    """The exporter does not respond, or its metrics have no time of their last update."""


class ControlError(AgentError):
    """The control socket took no fault; the message says why."""


class KubeletError(AgentError):
    """The kubelet, or a socket in its folder, failed."""


class KubeletAwayError(KubeletError):
    """The kubelet's socket does not respond, or not in time."""


class KubeletRefusedError(KubeletError):
    """The kubelet responds with an error."""


class SocketError(KubeletError):
    """The agent cannot make its own socket, or read the folder of sockets."""


class AllocationError(KubeletError):
    """The agent cannot allocate what the kubelet requests."""


class UnknownUnitError(AllocationError):
    """The request names unknown units, or none."""


class NoShareError(AllocationError):
    """Nobody can tell which pod a request for shared devices is for, so that no container gets another pod's."""


class CdiError(AllocationError):
    """No CDI specification names the devices, so that no runtime could inject them."""
