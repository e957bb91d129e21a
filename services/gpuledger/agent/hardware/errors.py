"""The errors of a node's cards.

HardwareError
├── DriverMissingError    no driver answers
├── CardLostError         the card does not answer any more, or is not there
├── BusyError             something uses what a call would change
├── UnsupportedError      the card or its driver does not support the call; trying again changes nothing
└── HungError             the driver has not returned in time
"""


class HardwareError(Exception):
    """The hardware or its driver failed."""


class DriverMissingError(HardwareError):
    """No driver answers."""


class CardLostError(HardwareError):
    """The card does not answer any more, or is not there."""


class BusyError(HardwareError):
    """Something uses what a call would change."""


class UnsupportedError(HardwareError):
    """The card or its driver does not support the call; trying again changes nothing."""


class HungError(HardwareError):
    """The driver has not returned in time."""
