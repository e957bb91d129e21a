"""What the parts of the status writer are tried with, without any server."""

from typing import Any

from gpuledger.edge.statuswriter.objects import DesiredObject, Document, Key, Kind

DEVICE, NODE = Key(Kind.DEVICE, "w1-0"), Key(Kind.NODE, "w1")


def obj(version: str = "5", uid: str = "u", **more: Any) -> Document:
    """A GPUDevice as the API server has it; `more` replaces its parts, but of the metadata adds to them."""
    metadata = {"name": "w1-0", "uid": uid, "resourceVersion": version, "labels": {"team": "a"}}
    return {"metadata": metadata | more.pop("metadata", {}), "status": {"state": "Ready"}} | more


RIGHT = DesiredObject({"labels": {}}, {"state": "Ready"})


class Clock:
    """Seconds that pass when the test advances them."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s
