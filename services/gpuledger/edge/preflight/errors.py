"""What can go wrong in the injection of preflight checks.

PreflightError
└── ConfigurationError      the configuration cannot be used; its message names each field that is wrong
"""


class PreflightError(Exception):
    """The injection of checks could not do its work."""


class ConfigurationError(PreflightError):
    """The configuration cannot be used. The message says what is wrong, where, and what to do."""
