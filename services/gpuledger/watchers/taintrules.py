"""DeviceTaintRules as facts: which devices people keep from being used. Pure."""

from typing import Final

import orjson

from gpuledger.events.slice import TaintRuleLifted, TaintRuleSet
from gpuledger.kube.names import DEVICE_TAINT_RULES
from gpuledger.watchers.decide import Kind, Object, Part
from gpuledger.watchers.reading import key_of, mapping, name_of, packed, text
from gpuledger.watchers.slices import taint_of


def read(obj: Object) -> Part:
    """What matters of a DeviceTaintRule; one without a taint says nothing."""
    taint = taint_of(mapping(obj, "spec", "taint"))
    if taint is None:
        return Part(key_of(obj), None, b"", ("it has no taint with a key and an effect",))
    selector = mapping(obj, "spec", "deviceSelector")
    said = {
        "uid": text(mapping(obj, "metadata").get("uid")) or "-",
        "taint": taint,
        **{name: text(selector.get(name)) for name in ("driver", "pool", "device")},
    }
    return Part(key_of(obj), name_of(obj), packed(said))


def combine(parts: list[bytes]) -> TaintRuleSet:
    """The payload; a DeviceTaintRule has one part."""
    return TaintRuleSet.model_validate(orjson.loads(parts[0]))


def farewell(uid: str | None) -> TaintRuleLifted:
    """What says that the DeviceTaintRule is gone."""
    return TaintRuleLifted(uid=uid)


KIND: Final = Kind(
    name="taintrules",
    resource=DEVICE_TAINT_RULES,
    aggregate=TaintRuleSet.AGGREGATE,
    read=read,
    combine=combine,
    farewell=farewell,
)
