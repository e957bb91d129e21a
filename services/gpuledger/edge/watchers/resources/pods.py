"""Pods that ask for units of pools, as facts: how many of which, and on which node. Pure.

All other pods say nothing here, and neither does one that has ended: it gives back what it had.
"""

from typing import Final

import orjson

from gpuledger.api.kinds import PODS
from gpuledger.edge.watchers.decide import Kind, Object, Part
from gpuledger.edge.watchers.problems import Problems
from gpuledger.edge.watchers.reading import key_of, mapping, name_of, subject_text, text
from gpuledger.edge.watchers.resources.requests import requests_of
from gpuledger.events.pod import PodGone, PodObserved

ENDED: Final = ("Succeeded", "Failed")


def read(obj: Object) -> Part:
    """What matters of a Pod."""
    metadata, spec, problems = mapping(obj, "metadata"), mapping(obj, "spec"), Problems()
    if mapping(obj, "status").get("phase") in ENDED:
        return Part(key_of(obj), None, b"")
    requests = requests_of(spec, problems)
    if not requests:
        return Part(key_of(obj), None, b"", problems.told)
    namespace, name = text(metadata.get("namespace")), name_of(obj)
    subject = subject_text(f"{namespace}/{name}") if namespace and name else None
    if subject is None:
        return Part(key_of(obj), None, b"", (*problems.told, "it has no namespace or no name"))
    said = {
        "uid": text(metadata.get("uid")) or "-",
        "node": problems.text(spec, "nodeName"),
        "requests": requests,
    }
    return problems.part(obj, subject, said)


def combine(parts: list[bytes]) -> PodObserved:
    """The payload; a Pod has one part."""
    return PodObserved.model_validate(orjson.loads(parts[0]))


def farewell(uid: str | None) -> PodGone:
    """What says that the Pod has ended, or is gone."""
    return PodGone(uid=uid)


KIND: Final = Kind(
    name="pods",
    resource=PODS,
    aggregate=PodObserved.AGGREGATE,
    read=read,
    combine=combine,
    farewell=farewell,
)
