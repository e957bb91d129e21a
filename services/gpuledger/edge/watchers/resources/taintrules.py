"""DeviceTaintRules as facts: which devices people keep from being used. Pure."""

from typing import Final

import orjson

from gpuledger.api.kinds import DEVICE_TAINT_RULES, OLDER_DEVICE_TAINT_RULES
from gpuledger.edge.watchers.decide import Kind, Object, Part
from gpuledger.edge.watchers.problems import Problems
from gpuledger.edge.watchers.reading import key_of, mapping, name_of, text
from gpuledger.edge.watchers.resources.slices import taint_of
from gpuledger.events.slice import TaintRuleLifted, TaintRuleSet


def read(obj: Object) -> Part:
    """What matters of a DeviceTaintRule; one that is not understood whole would taint too much, and says nothing."""
    spec, name, problems = mapping(obj, "spec"), name_of(obj), Problems()
    taint = taint_of(mapping(spec, "taint"), problems.within("taint"))
    selector = problems.optional(mapping(spec, "deviceSelector"), "driver", "pool", "device")
    if name is None or taint is None or selector is None:
        return Part(key_of(obj), None, b"", problems.told or ("it has no name",))
    uid = text(mapping(obj, "metadata").get("uid")) or "-"
    return problems.part(obj, name, {"uid": uid, "taint": taint, **selector})


def combine(parts: list[bytes]) -> TaintRuleSet:
    """The payload; a DeviceTaintRule has one part."""
    return TaintRuleSet.model_validate(orjson.loads(parts[0]))


def farewell(uid: str | None) -> TaintRuleLifted:
    """What says that the DeviceTaintRule is gone."""
    return TaintRuleLifted(uid=uid)


KIND: Final = Kind(
    name="taintrules",
    resource=DEVICE_TAINT_RULES,
    older=(OLDER_DEVICE_TAINT_RULES,),
    aggregate=TaintRuleSet.AGGREGATE,
    read=read,
    combine=combine,
    farewell=farewell,
)
