"""The parts of status documents, as they are expected word for word."""

from typing import Any

from support.dra import Document, device

TWO = (device("gpu-0"), device("gpu-1"))


def holds(name: str = "c", uid: str = "uid-1", **more: Any) -> Document:
    """How an allocation of a claim of the namespace `ns` is told."""
    return {"claimNamespace": "ns", "claimName": name, "claimUID": uid, "request": "r", **more}


def summary(total: int, allocated: int, available: int, partial: int = 0, **capacity: dict[str, str]) -> Document:
    """How a slice's devices are counted."""
    return {
        "totalDevices": total,
        "allocatedDevices": allocated,
        "availableDevices": available,
        "partiallyAllocatedDevices": partial,
        **capacity,
    }


AGREES = "The slices of the pool agree with each other."
AGREES_SO_FAR = "The slices that are there agree, and others are missing."


def pool(
    seen: int = 1,
    of: int = 1,
    generation: int = 1,
    invalid: str = "",
    errors: tuple[str, ...] = (),
    undecided: str = AGREES_SO_FAR,
) -> Document:
    """A pool's status: how many slices of how many, why it is invalid or undecided, and its errors."""
    is_complete = seen == of
    message = f"{seen} of {of} slices of generation {generation} are there."
    valid = ("False", "ValidationFailed", invalid) if invalid else ("True", "ValidationPassed", AGREES)
    if not is_complete and not invalid:
        valid = ("Unknown", "PoolIncomplete", undecided)
    recorded = (("Complete", *_complete(is_complete), message), ("Valid", *valid))
    found: Document = {
        "conditions": [dict(zip(("type", "status", "reason", "message"), one, strict=True)) for one in recorded],
        "observedSliceCount": seen,
        "expectedSliceCount": of,
    }
    return found | ({"validationErrors": list(errors)} if errors else {})


def _complete(is_complete: bool) -> tuple[str, str]:
    return ("True", "SliceCountMatch") if is_complete else ("False", "SliceCountMismatch")


FREE = {"name": "gpu-1", "state": "Available"}
BOTH_FREE = {
    "devices": [{"name": "gpu-0", "state": "Available"}, FREE],
    "summary": summary(2, 0, 2),
    "observedGeneration": 1,
    "poolStatus": pool(),
}
