"""The report of a result, as health monitors of NVSentinel report. Pure.

Every card of a check is in one report: healthy, or with what was found of it. Where no card is known, the report
is about the pod. A result that says nothing about hardware is a report about neither; see `api.preflight.Detail`.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from gpuledger.api.preflight import MONITOR, Detail, check_container
from gpuledger.domain.preflight.findings import Finding
from gpuledger.events.health import CODES_MAX, METADATA_CHARACTERS_MAX, Strategy
from gpuledger.events.nvsentinel import STRATEGY_NUMBERS, action_number
from gpuledger.events.payload import truncated
from gpuledger.healthreports.healthevents_pb2 import Entity, HealthEvent, HealthEvents
from gpuledger.healthreports.impacted import GPU_UUID
from gpuledger.preflight.conclusion import CheckConclusion
from gpuledger.preflight.settings import PodIdentity

COMPONENT: Final = "GPU"
POD: Final = "POD"
VERSION: Final = 1

EVENTS_MAX: Final = 64
"""How many events a request has; gateways take no more of a check. Fatal findings come first."""

ENTITIES_MAX: Final = 64
"""How many cards a report names; gateways take no more of a check."""


def report_of(
    check: str, result: CheckConclusion, pod: PodIdentity, strategy: Strategy, duration_s: float, at: datetime
) -> HealthEvents:
    """The request that reports a result of a check on a pod, true at `at`."""
    common = HealthEvent(
        version=VERSION,
        agent=MONITOR,
        componentClass=COMPONENT,
        checkName=check_container(check),
        nodeName=pod.node,
        metadata=_texts(_of_pod(pod)),
        generatedTimestamp=_stamp(at),
        processingStrategy=STRATEGY_NUMBERS[strategy],  # type: ignore[arg-type] # an open enumeration
    )
    parts = [_neutral(result)] if result.is_neutral else _about_cards(result, pod)
    events = []
    for part in parts:
        event = HealthEvent()
        event.CopyFrom(common)
        event.MergeFrom(part)
        events.append(event)
    events[0].metadata.update(_texts(_of_result(result, duration_s)))
    return HealthEvents(version=VERSION, events=events)


def _neutral(result: CheckConclusion) -> HealthEvent:
    return HealthEvent(
        isHealthy=True,
        message=truncated(result.message),
        errorCode=[result.outcome.upper().replace("-", "_")],
        processingStrategy=STRATEGY_NUMBERS["store-only"],  # type: ignore[arg-type]
    )


def _about_cards(result: CheckConclusion, pod: PodIdentity) -> list[HealthEvent]:
    """What was found, and that all other cards are healthy; findings about all cards leave none."""
    groups: dict[tuple[str | None, bool, str], list[Finding]] = {}
    for finding in result.findings:
        groups.setdefault((finding.gpu, finding.fatal, finding.action), []).append(finding)
    found = [_unhealthy(group, _named(_about(group[0], result), pod)) for group in groups.values()][: EVENTS_MAX - 1]
    blamed = {card for finding in result.findings for card in _about(finding, result)}
    healthy = tuple(card for card in result.cards if card not in blamed)
    if healthy or not found:
        named = _named(healthy, pod)
        found.append(HealthEvent(isHealthy=True, message=truncated(result.message), entitiesImpacted=named))
    return found


def _about(finding: Finding, result: CheckConclusion) -> tuple[str, ...]:
    return result.cards if finding.gpu is None else (finding.gpu,)


def _unhealthy(findings: list[Finding], about: list[Entity]) -> HealthEvent:
    return HealthEvent(
        isFatal=findings[0].fatal,
        message=truncated("; ".join(dict.fromkeys(finding.message for finding in findings))),
        errorCode=list(dict.fromkeys(finding.code for finding in findings))[:CODES_MAX],
        recommendedAction=action_number(findings[0].action),  # type: ignore[arg-type] # as above
        entitiesImpacted=about,
    )


def _named(cards: tuple[str, ...], pod: PodIdentity) -> list[Entity]:
    if not cards:
        return [Entity(entityType=POD, entityValue=f"{pod.namespace}/{pod.name}")]
    return [Entity(entityType=GPU_UUID, entityValue=card) for card in cards[:ENTITIES_MAX]]


def _of_pod(pod: PodIdentity) -> Mapping[Detail, str]:
    return {Detail.POD_NAMESPACE: pod.namespace, Detail.POD_NAME: pod.name, Detail.POD_UID: pod.uid}


def _of_result(result: CheckConclusion, duration_s: float) -> Mapping[Detail, str]:
    """What stands in one event of a request alone, so that a result counts once."""
    return {
        Detail.OUTCOME: result.outcome,
        Detail.DURATION_S: _decimal(duration_s),
        Detail.GANG_WAIT_S: _decimal(result.gang_wait_s),
        Detail.BANDWIDTH: _decimal(result.bandwidth_gbps),
        Detail.THRESHOLD: _decimal(result.threshold_gbps),
        **result.details,
    }


def _texts(metadata: Mapping[Detail, str]) -> dict[str, str]:
    return {key.value: value[:METADATA_CHARACTERS_MAX] for key, value in metadata.items() if value}


def _decimal(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}".rstrip("0").rstrip(".")


def _stamp(at: datetime) -> Timestamp:
    stamp = Timestamp()
    stamp.FromDatetime(at)
    return stamp
