"""Files that declare devices, as a vendor's program writes them."""

from typing import Any

import orjson

FPGA = {"type": "fpga", "id": "fpga-0", "minor": 0, "health": True, "resources": {"kooperator/fpga": "100"}}


def fpga(minor: int, **other: Any) -> dict[str, Any]:
    """An FPGA of that minor number."""
    return FPGA | {"minor": minor, "id": f"fpga-{minor}"} | other


def file_of(*devices: dict[str, Any]) -> bytes:
    """The file with these devices."""
    return orjson.dumps(devices)
