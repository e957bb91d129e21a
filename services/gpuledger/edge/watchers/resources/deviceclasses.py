"""DeviceClasses as facts: which devices belong to a class. Pure."""

from typing import Final

import orjson

from gpuledger.api.kinds import DEVICE_CLASSES
from gpuledger.edge.watchers.decide import Kind, Object, Part
from gpuledger.edge.watchers.problems import Problems
from gpuledger.edge.watchers.reading import key_of, mapping, name_of, text
from gpuledger.edge.watchers.resources.claims import selectors_of
from gpuledger.events.slice import DeviceClassDefined, DeviceClassRemoved


def read(obj: Object) -> Part:
    """What matters of a DeviceClass."""
    name, problems = name_of(obj), Problems()
    if name is None:
        return Part(key_of(obj), None, b"", ("it has no name",))
    uid = text(mapping(obj, "metadata").get("uid")) or "-"
    said = {"uid": uid, "selectors": selectors_of(mapping(obj, "spec"), problems)}
    return problems.part(obj, name, said)


def combine(parts: list[bytes]) -> DeviceClassDefined:
    """The payload; a DeviceClass has one part."""
    return DeviceClassDefined.model_validate(orjson.loads(parts[0]))


def farewell(uid: str | None) -> DeviceClassRemoved:
    """What says that the DeviceClass is gone."""
    return DeviceClassRemoved(uid=uid)


KIND: Final = Kind(
    name="deviceclasses",
    resource=DEVICE_CLASSES,
    aggregate=DeviceClassDefined.AGGREGATE,
    read=read,
    combine=combine,
    farewell=farewell,
)
