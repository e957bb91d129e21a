"""DeviceClasses as facts: which devices belong to a class. Pure."""

from typing import Final

from gpuledger.api.kinds import DEVICE_CLASSES
from gpuledger.edge.kube.objects import mapping
from gpuledger.edge.watchers.decide import Object, ObjectPart, WatchedKind
from gpuledger.edge.watchers.fields import FieldReader, name_of, skipped, uid_of
from gpuledger.edge.watchers.resources.claims import selectors_of
from gpuledger.events.slice import DeviceClassDefined, DeviceClassRemoved


def read(obj: Object) -> ObjectPart:
    """The relevant content of a DeviceClass."""
    name, reader = name_of(obj), FieldReader()
    if name is None:
        return skipped(obj, "it has no name")
    return reader.part(obj, name, {"uid": uid_of(obj), "selectors": selectors_of(mapping(obj, "spec"), reader)})


KIND: Final = WatchedKind("deviceclasses", DEVICE_CLASSES, DeviceClassDefined, DeviceClassRemoved, read)
