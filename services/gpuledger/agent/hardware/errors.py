"""What can go wrong with a node's cards.

HardwareError
├── DriverMissingError    no driver answers
├── CardLostError         the card does not answer any more, or is not there
├── BusyError             something uses what was to be changed
├── RefusedError          the card or its driver does not do that; trying again changes nothing
└── HungError             the driver has not answered within its bound
"""


class HardwareError(Exception):
    """The hardware, or its driver, did not do what it was asked to."""


class DriverMissingError(HardwareError):
    """No driver answers."""


class CardLostError(HardwareError):
    """The card does not answer any more, or is not there."""


class BusyError(HardwareError):
    """Something uses what was to be changed."""


class UnsupportedError(HardwareError):
    """The card or its driver does not do that; trying again changes nothing."""


class HungError(HardwareError):
    """The driver has not answered within its bound."""
