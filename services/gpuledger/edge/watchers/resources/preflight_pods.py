"""Pods with injected preflight checks, as facts: how far each check is, and which gang the pod belongs to. Pure.

Anybody may label a pod. So one counts only where a webhook keeps others from using the names and marks of checks, and
with the init containers of the checks that it names; what was recorded once is followed to its end.
A check that fails is tried again for as long as its pod exists. Between two failed ends nothing is recorded, so that a
crash loop makes one fact for each attempt, and no more.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from ipaddress import ip_address
from typing import Any, Final

import orjson
from pydantic import ValidationError

from gpuledger.api.kinds import PODS
from gpuledger.api.preflight import (
    ANNOTATION_GANG,
    ANNOTATION_GANG_SIZE,
    ANNOTATION_GANG_SOURCE,
    ANNOTATION_INJECTED,
    LABEL_PREFLIGHT,
    check_container,
)
from gpuledger.edge.kube.objects import items, mapping, time_of
from gpuledger.edge.watchers.decide import LastRecord, Object, ObjectPart, WatchedKind
from gpuledger.edge.watchers.fields import (
    FieldReader,
    is_storable,
    namespaced_name,
    number,
    skipped,
    text,
    uid_of,
    whole,
)
from gpuledger.events.preflight import (
    CHECKS_MAX,
    PEERS_MAX,
    PodPreflightGone,
    PodPreflightObserved,
    PreflightResult,
)

Find = Callable[[str], LastRecord | None]
"""Gives the last record of a pod, by `<namespace>/<name>`."""

INJECTED: Final = "true"
ENDED: Final = ("Succeeded", "Failed")
EXIT_CODE_MAX: Final = 2**31 - 1
RESULT_CHARS_MAX: Final = 4096
"""How much of a termination message the kubelet keeps."""


def kind(namespaces: Collection[str], find: Find) -> WatchedKind[PodPreflightObserved]:
    """Pods of these namespaces, and those that were recorded before; `find` has the last record of each."""

    def read_followed(obj: Object) -> ObjectPart:
        namespace = text(mapping(obj, "metadata").get("namespace"))
        subject = namespaced_name(obj)
        if namespace in namespaces or (subject is not None and _is_recorded(find(subject), uid_of(obj))):
            return read(obj)
        return skipped(obj)

    return replace(KIND, read=read_followed)


def _is_recorded(last: LastRecord | None, uid: str) -> bool:
    return last is not None and last.digest is not None and last.uid == uid


def read(obj: Object) -> ObjectPart:
    """The relevant content of a Pod with injected checks."""
    metadata, reader = mapping(obj, "metadata"), FieldReader()
    if mapping(metadata, "labels").get(LABEL_PREFLIGHT) != INJECTED:
        return skipped(obj)
    subject = namespaced_name(obj)
    if subject is None:
        return skipped(obj, "it has no namespace or no name")
    annotations = mapping(metadata, "annotations")
    checks = list(_checks(obj, annotations, reader))
    if not checks:
        return skipped(obj, "it is labelled as a pod with preflight checks, and has none of those that it names")
    content = {
        "uid": uid_of(obj),
        "node": reader.text(mapping(obj, "spec"), "nodeName"),
        "ip": _address(mapping(obj, "status"), reader),
        **_gang(annotations, reader),
        "checks": checks,
        "done": _is_over(obj) or all(_has_passed(one) for one in checks),
    }
    return reader.part(obj, subject, content)


def _is_over(obj: Object) -> bool:
    """Whether the pod has ended, or is being deleted."""
    is_deleted = mapping(obj, "metadata").get("deletionTimestamp") is not None
    return is_deleted or mapping(obj, "status").get("phase") in ENDED


def _has_passed(check: Mapping[str, Any]) -> bool:
    return bool(check["state"] == "ended" and check["exit_code"] == 0)


def _gang(annotations: Mapping[str, Any], reader: FieldReader) -> dict[str, Any]:
    """The gang that the webhook found; a size that is none is left out."""
    size = annotations.get(ANNOTATION_GANG_SIZE)
    is_number = isinstance(size, str) and size.isascii() and size.isdigit() and len(size) <= len(str(PEERS_MAX))
    found = number(int(size), PEERS_MAX) if isinstance(size, str) and is_number else None
    if found is None and size is not None:
        reader.reject(ANNOTATION_GANG_SIZE, size)
    return {
        "gang": reader.text(annotations, ANNOTATION_GANG),
        "gang_source": reader.text(annotations, ANNOTATION_GANG_SOURCE),
        "gang_size": found,
    }


def _address(status: Mapping[str, Any], reader: FieldReader) -> str | None:
    address = reader.text(status, "podIP")
    if address is None:
        return None
    try:
        return str(ip_address(address))
    except ValueError:
        reader.reject("podIP", address)
        return None


def _checks(obj: Object, annotations: Mapping[str, Any], reader: FieldReader) -> Iterator[dict[str, Any]]:
    """The injected checks in their order."""
    injected = annotations.get(ANNOTATION_INJECTED)
    names = [name for one in injected.split(",") if (name := one.strip())] if isinstance(injected, str) else []
    if len(names) > CHECKS_MAX:
        reader.note(f"it has {len(names)} checks; only {CHECKS_MAX} of them are recorded")
    there = _by_name(obj, "spec", "initContainers")
    found = _by_name(obj, "status", "initContainerStatuses")
    for name in names[:CHECKS_MAX]:
        if text(name) is None or check_container(name) not in there:
            reader.reject(ANNOTATION_INJECTED, name)
        else:
            yield _check(name, found.get(check_container(name), {}))


def _by_name(obj: Object, *path: str) -> dict[str | None, Mapping[str, Any]]:
    return {text(one.get("name")): one for one in map(mapping, items(obj, *path))}


def _check(name: str, status: Mapping[str, Any]) -> dict[str, Any]:
    """A check by the status of its container: a failed end holds until the next one."""
    restarts, running = whole(status.get("restartCount")), mapping(status, "state", "running")
    ended = mapping(status, "state", "terminated")
    last = ended or mapping(status, "lastState", "terminated")
    end = _end(last)
    if ended or end["exit_code"]:
        attempt = restarts - 1 if running and restarts else restarts
        return {"name": name, "state": "ended", "attempt": attempt, **end}
    if running:
        return {"name": name, "state": "running", "attempt": restarts, "started_at": _time(running, "startedAt")}
    return {"name": name, "state": "waiting", "attempt": restarts}


def _end(ended: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "exit_code": _exit_code(ended.get("exitCode")),
        "reason": text(ended.get("reason")),
        "started_at": _time(ended, "startedAt"),
        "ended_at": _time(ended, "finishedAt"),
        "result": result_of(ended.get("message")),
    }


def _exit_code(value: object) -> int | None:
    is_one = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= EXIT_CODE_MAX
    return value if isinstance(value, int) and is_one else None


def _time(given: Mapping[str, Any], key: str) -> str | None:
    found = time_of(given.get(key))
    return None if found is None else found.isoformat()


def result_of(message: object) -> dict[str, Any] | None:
    """What a check wrote about itself, as JSON; None for everything else that stands in a termination message."""
    if not isinstance(message, str) or len(message) > RESULT_CHARS_MAX or not is_storable(message):
        return None
    try:
        found = PreflightResult.model_validate(orjson.loads(message)).model_dump(mode="json")
    except (orjson.JSONDecodeError, ValidationError):
        return None
    return found if all(map(is_storable, (found["message"], *found["codes"]))) else None


KIND: Final = WatchedKind(
    "preflight-pods",
    PODS,
    PodPreflightObserved,
    PodPreflightGone,
    read,
    labels=f"{LABEL_PREFLIGHT}={INJECTED}",
)
