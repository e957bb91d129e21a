"""What can go wrong with the simulated fleet.

SimulationError
├── FleetSpecError    what `--fleet` says is no fleet
└── SpeedError        what `--speed` says is no speed
"""


class SimulationError(Exception):
    """The simulated fleet cannot be had."""


class FleetSpecError(SimulationError):
    """What `--fleet` says is no fleet; the message says where, and what would be one."""


class SpeedError(SimulationError):
    """What `--speed` says is no speed."""
