"""What can go wrong with an agent and with what it looks at; only those of its own folder end it.

AgentError
├── MonitoringError    the exporter's metrics cannot be had, or do not say when they were brought up to date
├── ControlError       nobody injects that fault
└── KubeletError       the kubelet, or a socket of its folder; see `gpuledger.agent.kubelet.errors`

What goes wrong with cards is in `gpuledger.agent.hardware.errors`.
"""


class AgentError(Exception):
    """Something that the agent needs or looks at cannot be had."""


class MonitoringError(AgentError):
    """The exporter's metrics cannot be had, or do not say when they were brought up to date."""


class ControlError(AgentError):
    """Nobody injects that fault; the message says why."""
