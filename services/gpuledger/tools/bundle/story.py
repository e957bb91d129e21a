"""What a bundle's events amount to: the incident as its ledger shows it, made anew from the events alone. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from gpuledger.domain.fact import Fact, time_of_ns
from gpuledger.domain.health import fold as health_fold
from gpuledger.domain.health.entities import NODE_ENTITY
from gpuledger.domain.health.rows import Health, HealthReport, Incident
from gpuledger.domain.workloads import allocations
from gpuledger.domain.workloads.allocations import AllocationRange, Allocations
from gpuledger.events.allocation import AllocationObserved
from gpuledger.events.device import DeviceReportAccepted, JudgedReport
from gpuledger.events.health import NodeHealthReported
from gpuledger.events.position import Generations, number_of, order
from gpuledger.projection.route import accepted
from gpuledger.tools.bundle.verify import REDACTED, SEALED, UNSEALED, WITHHELD, Bundle, BundledEvent

REPORT_COLUMNS: Final = (
    "reported_at", "healthy", "fatal", "codes", "message", "action", "reports", "reporter", "position", "recorded_at",
    "event_id",
)  # fmt: skip
HOLDER_COLUMNS: Final = (
    "node", "namespace", "pod", "container", "resource", "claim", "slice", "valid_from", "valid_to",
)  # fmt: skip

FOLDED_MAX: Final = 100_000
"""How many entities and units the shown events may be about, for the incident's course to be made of them."""

COMPARED_SHOWN_MAX: Final = 5
"""How many of the digests that are to be compared a note names."""

STANDINGS: Final = {
    SEALED: "the ledger's seals prove them as they are",
    UNSEALED: "no seal covers them yet: they are the exporter's word",
    REDACTED: "values are replaced: what is left is the exporter's word; their original digests are in the proof",
    WITHHELD: "only their digests and types are here",
}
"""What stands for events of each kind."""

Document = dict[str, Any]


def bundle_document(bundle: Bundle) -> Document:
    """Everything that a bundle says: its proof, the incident, and its events."""
    incident = incident_document(bundle)
    return {
        "bundle": _proof(bundle),
        "incident": incident,
        "events": [_event(one, Generations(bundle.head.generations)) for one in bundle.events],
        "notes": list(_notes(bundle, incident)),
    }


def incident_document(bundle: Bundle) -> Document | None:
    """The incident with its reports and holders, as `incident show` has it.

    None: its first report is not shown, or the events are about more than is folded.

    Raises:
        BundleError: an event is none that a ledger has.
    """
    facts = sorted(_facts(bundle.events), key=lambda one: (one.event.time, order(one.sequence)))
    if sum(map(_breadth, facts)) > FOLDED_MAX:
        return None
    health, held = _folded(facts)
    found = next((one for one in health.incident.rows.values() if one.incident == bundle.head.incident), None)
    if found is None:
        return None
    reports = [one for one in health.report.rows.values() if _is_of(found, one)]
    holders = [one for one in held.history.rows.values() if found.device and _held(found, one)]
    return {
        **found._asdict(),
        "opened_position": number_of(found.opened_position),
        "timeline": [_columns(one, REPORT_COLUMNS) for one in sorted(reports, key=lambda one: one.reported_at)],
        "holders": [
            _columns(one, HOLDER_COLUMNS)
            for one in sorted(holders, key=lambda one: (one.valid_from, one.namespace, one.pod, one.container))
        ],
    }


def _breadth(fact: Fact) -> int:
    data = fact.event.data
    if isinstance(data, NodeHealthReported):
        return len(data.entities) + len(data.devices)
    return data.units if isinstance(data, AllocationObserved) else 1


def _folded(facts: Iterable[Fact]) -> tuple[Health, Allocations]:
    """The rows of facts that come in the order of their times: then each needs what is open alone."""
    health, held = Health(), Allocations()
    for table in (*health.tables().values(), *held.tables().values()):
        table.never_written()
    for fact in facts:
        data = fact.event.data
        if (handler := health_fold.HANDLERS.get(type(data))) is not None:
            handler(health, fact, data)
        elif (handler := allocations.HANDLERS.get(type(data))) is not None:
            handler(held, fact, data)
    return health, held


def _facts(events: Iterable[BundledEvent]) -> Iterator[Fact]:
    """What folds hear: each event once, and an agent's report on a card where it was accepted."""
    shown = [(one, one.event) for one in events if one.event is not None]
    judged = {event.data.report for _, event in shown if isinstance(event.data, JudgedReport)}
    ids = set[str]()
    for one, event in shown:
        if event.id in ids or event.id in judged:
            continue
        ids.add(event.id)
        data = event.data
        yield Fact(
            accepted(event, data) if isinstance(data, DeviceReportAccepted) else event, one.position, one.recorded_ns
        )


def _is_of(incident: Incident, report: HealthReport) -> bool:
    is_about = report.entity == incident.entity or (report.entity == NODE_ENTITY and report.healthy)
    is_within = report.reported_at >= incident.opened_at
    is_before_end = incident.ended_at is None or report.reported_at <= incident.ended_at
    return report.scope == incident.scope and is_about and is_within and is_before_end


def _held(incident: Incident, one: AllocationRange) -> bool:
    is_before_end = incident.ended_at is None or one.valid_from <= incident.ended_at
    return (
        one.device == incident.device and is_before_end and (one.valid_to or incident.opened_at) >= incident.opened_at
    )


def _columns(row: HealthReport | AllocationRange, columns: tuple[str, ...]) -> Document:
    return {name: getattr(row, name) for name in columns}


def _proof(bundle: Bundle) -> Document:
    head, signer = bundle.head, bundle.signer
    return {
        "ledger": head.ledger,
        "generation": Generations(head.generations).current,
        "digest": bundle.digest,
        "signedBy": signer and signer.key,
        "signerIsExpected": signer is not None and signer.is_expected,
        "seals": bundle.seals,
        "sealedFrom": bundle.first_sealed,
        "sealedTo": bundle.sealed_to,
        "sealDigest": bundle.seal_digest,
        "sealsToCompare": bundle.to_compare,
        "gaps": bundle.gaps,
        "redacted": head.redacted,
        "commitments": bundle.commitments,
        "events": {kind: sum(one.standing == kind for one in bundle.events) for kind in STANDINGS},
    }


def _event(one: BundledEvent, generations: Generations) -> Document:
    event = one.event
    row: Document = {
        "position": str(generations.position(one.position)),
        "type": one.type.removeprefix("io.gpuledger."),
        "standing": one.standing,
        "inSeal": one.in_seal,
    }
    if event is None:
        return row | dict.fromkeys(("time", "recorded_at", "about", "source", "event_id", "causation_id", "detail"))
    return row | {
        "time": event.time,
        "recorded_at": event.recorded_at or time_of_ns(one.recorded_ns),
        "about": f"{event.data.AGGREGATE}/{event.subject}",
        "source": event.source,
        "event_id": event.id,
        "causation_id": event.causation_id,
        "detail": _detail(event.data.model_dump(mode="json", exclude_none=True)),
    }


def _detail(data: Mapping[str, Any]) -> Document:
    return {key: value for key, value in data.items() if value not in (False, [], {}, "")}


def _notes(bundle: Bundle, incident: Document | None) -> Iterable[str]:
    for kind, words in STANDINGS.items():
        if count := sum(one.standing == kind for one in bundle.events):
            yield f"{count} events are {kind}: {words}."
    if incident is None:
        yield "The incident's course is not shown: its first report is not here, or its events are about too much."
    if bundle.gaps:
        yield f"The chain of seals is left out at {bundle.gaps} places; each part is proven by itself."
    if bundle.to_compare:
        yield (
            "The seals are the ledger's if its log has seals of these digests: "
            f"{', '.join(bundle.to_compare[:COMPARED_SHOWN_MAX])}"
            f"{' and the others of sealsToCompare' if len(bundle.to_compare) > COMPARED_SHOWN_MAX else ''}, "
            "or give the ledger's as --seal. Times of recording and the order of what is unsealed are the exporter's "
            "word."
        )
    if bundle.signer is None:
        yield "Nobody has signed the bundle."
    elif not bundle.signer.is_expected:
        yield "The signature is right, but whose key it is nobody has said: give theirs as --public-key."
