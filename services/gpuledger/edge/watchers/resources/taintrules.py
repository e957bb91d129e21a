"""DeviceTaintRules as facts: which devices people keep from being used. Pure."""

from typing import Final

from gpuledger.api.kinds import DEVICE_TAINT_RULES, OLDER_DEVICE_TAINT_RULES
from gpuledger.edge.kube.objects import mapping
from gpuledger.edge.watchers.decide import Object, ObjectPart, WatchedKind
from gpuledger.edge.watchers.fields import FieldReader, name_of, skipped, uid_of
from gpuledger.edge.watchers.resources.slices import taint_of
from gpuledger.events.slice import TaintRuleLifted, TaintRuleSet


def read(obj: Object) -> ObjectPart:
    """The content of a DeviceTaintRule; one that is not fully understood would taint too much, and is left out."""
    spec, name, reader = mapping(obj, "spec"), name_of(obj), FieldReader()
    taint = taint_of(mapping(spec, "taint"), reader.within("taint"))
    selector = reader.optional(mapping(spec, "deviceSelector"), "driver", "pool", "device")
    if name is None or taint is None or selector is None:
        return skipped(obj, *(reader.problems or ("it has no name",)))
    return reader.part(obj, name, {"uid": uid_of(obj), "taint": taint, **selector})


KIND: Final = WatchedKind(
    "taintrules", DEVICE_TAINT_RULES, TaintRuleSet, TaintRuleLifted, read, older=(OLDER_DEVICE_TAINT_RULES,)
)
