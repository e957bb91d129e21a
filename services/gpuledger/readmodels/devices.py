"""The devices projection: passports, installations, failures, errors, slots and contradictions."""

from gpuledger.domain.devices import fold as devices
from gpuledger.domain.devices import installations
from gpuledger.projection.definition import Projection


class DevicesProjection(Projection):
    """Folds `device.*` and `slot.*` events."""

    name = "devices"
    version = 2
    specs = devices.SPECS
    handlers = {**devices.HANDLERS, **installations.HANDLERS}

    def new_state(self) -> devices.Devices:
        """An empty state."""
        return devices.Devices()
