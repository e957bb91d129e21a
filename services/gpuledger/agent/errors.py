"""What can go wrong with what an agent looks at; each is a fact about the node, and none ends the agent.

AgentError
└── MonitoringError    the exporter's metrics cannot be had, or do not say when they were brought up to date
"""


class AgentError(Exception):
    """Something that the agent looks at cannot be seen."""


class MonitoringError(AgentError):
    """The exporter's metrics cannot be had, or do not say when they were brought up to date."""
