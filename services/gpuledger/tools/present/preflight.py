"""The preflight checks of a pod as its object in Kubernetes has them now, and its gang as its ConfigMap has it. Pure.

An object holds the last attempt at each check, and no times of what was before. Nothing here raises, whatever stands in
an object.
"""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Final

from gpuledger.api.preflight import ANNOTATION_GANG, CHECK_PREFIX, LABEL_PREFLIGHT, GangKey, Variable
from gpuledger.domain.preflight.durations import seconds_of
from gpuledger.domain.preflight.pod_checks import PodChecks
from gpuledger.domain.preflight.results import HANDLERS
from gpuledger.domain.preflight.results_gangs import following
from gpuledger.domain.preflight.results_rows import (
    GangEvent,
    Preflight,
    PreflightAttempt,
    PreflightGang,
    PreflightGangEvent,
)
from gpuledger.edge.kube.client import Object
from gpuledger.edge.kube.objects import items, mapping
from gpuledger.edge.watchers.resources.preflight_pods import INJECTED, KIND
from gpuledger.events.position import ORIGIN
from gpuledger.preflight.gang import gang_view
from gpuledger.tools.present.objects import dated, facts_of, fold, written_at

CHECKED: Final = f"{LABEL_PREFLIGHT}={INJECTED}"
"""Selects pods with injected checks."""


def gang_of(pod: Object) -> str | None:
    """The id of the gang that the webhook found for a Pod; None where it belongs to none."""
    gang = mapping(pod, "metadata", "annotations").get(ANNOTATION_GANG)
    return gang if isinstance(gang, str) else None


def has_checks(pod: Object) -> bool:
    """Whether a Pod has injected checks."""
    return mapping(pod, "metadata", "labels").get(LABEL_PREFLIGHT) == INJECTED


def attempts_of(pods: Iterable[Object]) -> dict[str, tuple[PreflightAttempt, ...]]:
    """By UID the last attempts of pods with injected checks."""
    state = Preflight()
    for table in state.tables().values():
        table.never_written()
    fold(state, HANDLERS, facts_of(KIND, (dated(KIND, obj) for obj in pods)))
    found: dict[str, tuple[PreflightAttempt, ...]] = {}
    for row in state.check.rows.values():
        found[row.uid] = (*found.get(row.uid, ()), row)
    return found


def checks_in(pod: Object, pods: Iterable[Object], config_map: Object | None) -> PodChecks | None:
    """The checks of a pod, of whose namespace these are the pods; None where it has none."""
    found = attempts_of([pod, *pods])
    attempts = found.pop(str(mapping(pod, "metadata").get("uid")), ())
    if not attempts:
        return None
    gang = attempts[0].gang
    peers = [one for rows in found.values() for one in rows if gang is not None and one.gang == gang]
    live = tuple(one for one in peers if one.over_at is None)
    return PodChecks(attempts, None if gang is None else gang_in(gang, config_map), live)


def gang_in(gang: str, config_map: Object | None) -> PreflightGang | None:
    """A gang, NAMESPACE/ID, as its ConfigMap has it; None without one."""
    if config_map is None:
        return None
    data = {str(key): str(value) for key, value in mapping(config_map, "data").items()}
    view, peers = gang_view(data, "", ""), data.get(GangKey.PEERS, "").split()
    at, name = written_at(config_map), str(mapping(config_map, "metadata").get("name"))
    is_complete = view.expected is not None and len(peers) == view.expected
    event = PreflightGangEvent(gang, at, GangEvent.CONFIGURED.value, ORIGIN, name, None, view.expected, len(peers))
    return following(None, event._replace(complete=is_complete))


def gang_timeouts(pod: Object) -> dict[str, timedelta]:
    """By check how long it waits for its gang, as the containers of the pod's checks of gangs have it."""
    return dict(_timeouts(pod))


def _timeouts(pod: Object) -> Iterator[tuple[str, timedelta]]:
    for container in map(mapping, items(pod, "spec", "initContainers")):
        name = str(container.get("name"))
        if not name.startswith(CHECK_PREFIX):
            continue
        for one in map(mapping, items(container, "env")):
            seconds = seconds_of(str(one.get("value"))) if one.get("name") == Variable.GANG_TIMEOUT else None
            if seconds is not None and seconds < timedelta.max.total_seconds():
                yield name.removeprefix(CHECK_PREFIX), timedelta(seconds=seconds)
