"""Why a report of a health monitor is refused. Every message says why, and what to do.

HealthReportError
├── InvalidReportError      a field of the report is invalid
├── UnauthenticatedError    nobody can tell who reports
├── ReportDeniedError       the reporter may not report that
├── SpoolFullError          there is no room, until the ledger takes what waits
├── RateExceededError       the reporter sends more than its share
├── CheckUnconfirmedError   nobody can tell yet whether a preflight check reports
└── NotDurableError         nothing can be acknowledged at the moment
"""


class HealthReportError(Exception):
    """A report of a health monitor is refused, and has no effect."""


class InvalidReportError(HealthReportError):
    """A field of the report is invalid; the message begins with its name."""


class UnauthenticatedError(HealthReportError):
    """Nobody can tell who reports."""


class ReportDeniedError(HealthReportError):
    """The reporter may not report that."""


class SpoolFullError(HealthReportError):
    """There is no room, until the ledger takes what waits."""


class RateExceededError(HealthReportError):
    """The reporter sends more than its share."""


class CheckUnconfirmedError(HealthReportError):
    """Nobody can tell yet whether a preflight check of the pod reports; to send the report again does no harm."""


class NotDurableError(HealthReportError):
    """Nothing can be acknowledged at the moment; to send the report again later does no harm."""
