"""Nodes' labels as facts, which node selectors of slices and of their devices ask for. Pure.

Apart from the Nodes themselves, of which only what tells of GPUs matters: these are as many as people and add-ons like,
and change for reasons of theirs.
"""

from typing import Final

import orjson

from gpuledger.api.kinds import NODES
from gpuledger.edge.watchers.decide import Kind, Object, Part
from gpuledger.edge.watchers.problems import Problems
from gpuledger.edge.watchers.reading import chosen, key_of, mapping, name_of, packed, text
from gpuledger.edge.watchers.resources.nodes import LABELS_THAT_TICK
from gpuledger.events.node import LABELS_MAX, NodeLabelled, NodeUnlabelled
from gpuledger.events.payload import NAME_LENGTH_MAX


def read(obj: Object) -> Part:
    """All labels of a Node, but for those that tick."""
    metadata, problems = mapping(obj, "metadata"), Problems()
    name, uid = name_of(obj), text(metadata.get("uid"))
    if name is None or uid is None:
        return Part(key_of(obj), None, b"")
    given = {key: value for key, value in mapping(metadata, "labels").items() if key not in LABELS_THAT_TICK}
    labels = chosen(given, lambda _key: True, LABELS_MAX, NAME_LENGTH_MAX)
    if len(labels) < len(given):
        problems.say(f"{len(given) - len(labels)} of its {len(given)} labels are too long or too many")
    return Part(key_of(obj), name, packed({"uid": uid, "labels": labels}), problems.told)


def combine(parts: list[bytes]) -> NodeLabelled:
    """The payload; a Node has one part."""
    return NodeLabelled.model_validate(orjson.loads(parts[0]))


def farewell(uid: str | None) -> NodeUnlabelled:
    """What says that the Node is gone."""
    return NodeUnlabelled(uid=uid)


KIND: Final = Kind(
    name="nodelabels",
    resource=NODES,
    aggregate=NodeLabelled.AGGREGATE,
    read=read,
    combine=combine,
    farewell=farewell,
)
