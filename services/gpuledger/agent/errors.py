"""The agent's errors at its edges: exporter, control socket, kubelet and health monitors. None of them ends the agent.

AgentError
├── MonitoringError           the exporter does not respond, or its metrics have no time of their last update
├── ControlError              the control socket took no fault
├── HealthReportError         the agent takes no report of a health monitor
│   ├── InvalidReportError    a field of the report is invalid
│   ├── ReportDeniedError     the reporter may not report that
│   ├── SpoolFullError        the outbox has no room, until the ledger takes what waits
│   └── NotDurableError       the disk takes no writes, so that nothing can be acknowledged
└── KubeletError              the kubelet, or a socket in its folder
    ├── KubeletAwayError      the kubelet's socket does not respond, or not in time
    ├── KubeletRefusedError   the kubelet responds with an error
    ├── SocketError           the agent cannot make its own socket, or read the folder of sockets
    └── AllocationError       the agent cannot allocate what the kubelet requests
        ├── UnknownUnitError  the request names unknown units, or none
        └── CdiError          no CDI specification names the devices, so that no runtime could inject them

Errors of the cards are in `gpuledger.agent.hardware.errors`, those of the outbox in `gpuledger.agent.outbox.errors`.
"""


class AgentError(Exception):
    """Something outside the agent failed."""


class MonitoringError(AgentError):
    """The exporter does not respond, or its metrics have no time of their last update."""


class ControlError(AgentError):
    """The control socket took no fault; the message says why."""


class HealthReportError(AgentError):
    """The agent takes no report of a health monitor; the message says why, and what to do."""


class InvalidReportError(HealthReportError):
    """A field of the report is invalid; the message begins with its name."""


class ReportDeniedError(HealthReportError):
    """The reporter may not report that."""


class SpoolFullError(HealthReportError):
    """The outbox has no room, until the ledger takes what waits."""


class NotDurableError(HealthReportError):
    """The disk takes no writes, so that nothing can be acknowledged."""


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


class CdiError(AllocationError):
    """No CDI specification names the devices, so that no runtime could inject them."""
