"""Remediation of nodes: what is done about the faults of a node that is set aside, and what comes of it.

Operators record whole documents of remedies. The service `remediation` decides which one a node gets, which is an
intent; the service `remediator` alone creates the object that it names, watches it, and records the outcome. Who
carries out what the object says is somebody else's controller.
"""

from typing import Annotated, Any, Final, Literal

import orjson
from pydantic import Field, StringConstraints

from gpuledger.events.device import Uuid
from gpuledger.events.maintenance import EventId
from gpuledger.events.payload import TEXT_LENGTH_MAX, Name, Number, Payload, Text
from gpuledger.events.publishing import SourceKind, by_service
from gpuledger.events.quarantine import Digest
from gpuledger.events.registry import registry

REMEDIATION: Final = "default"
"""The subject of what concerns the remediation of all nodes."""

REMEDIES_MAX = 64
ACTIONS_MAX = 64
VALUES_MAX = 16
FAULTS_MAX = 512
REMEDY_NAME_MAX = 40
"""How long the name of a remedy is: that of an object begins with it, and has a digest after it."""

DRAINING: Final = "Draining"
"""Why a remedy that was not begun is cancelled whose node is drained."""

NOT_DRAINED: Final = "NotDrained"
"""Why a person has to look at a node whose drain was given up."""

MANIFEST_LENGTH_MAX = 16 * 1024
ATTEMPTS_MAX = 100
PERIOD_MAX_S = 7 * 24 * 3600
TIMEOUT_MAX_S = 7 * 24 * 3600
RETENTION_MAX_S = 30 * 24 * 3600
EVENT_AGE_MAX_S = 24 * 3600

_BY_OPERATORS = by_service(SourceKind.OPERATORS)
_BY_DECIDER = by_service(SourceKind.REMEDIATION)
_BY_WRITER = by_service(SourceKind.REMEDIATOR)

RemedyName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=REMEDY_NAME_MAX)]
Manifest = Annotated[str, StringConstraints(min_length=2, max_length=MANIFEST_LENGTH_MAX)]
"""An object of Kubernetes as JSON."""

Scope = Literal["node", "device"]


class OutcomeSign(Payload):
    """What an object shows of an outcome: a condition with a status, or a field with one of some values.

    `path` is a field path such as `status.phase`. One of `condition` and `path` is given.
    """

    condition: Name | None = None
    status: Name = "True"
    path: Name | None = None
    values: Annotated[tuple[Name, ...], Field(max_length=VALUES_MAX)] = ()


class Remedy(Payload):
    """What is done about faults with these recommended actions: an object of this template is created.

    Remedies of one `group` are alternatives: faults of a node share an object of the group. One of scope `node` is for
    all of them, one of scope `device` for those of one card. `resource` is the plural of the object's kind.
    `succeeded` and `failed` say what its outcome is; after `timeout_s` without one it has failed. Then the remedy
    `escalate_to` follows, where there is one. The object is deleted `retention_s` after its outcome; None: never.
    """

    name: RemedyName
    group: Name
    scope: Scope = "node"
    actions: Annotated[tuple[Name, ...], Field(max_length=ACTIONS_MAX)] = ()
    custom_actions: Annotated[tuple[Name, ...], Field(max_length=ACTIONS_MAX)] = ()
    resource: Name
    template: Manifest
    succeeded: OutcomeSign
    failed: OutcomeSign | None = None
    timeout_s: Annotated[int, Field(ge=1, le=TIMEOUT_MAX_S)] = 3600
    escalate_to: RemedyName | None = None
    retention_s: Annotated[int, Field(ge=0, le=RETENTION_MAX_S)] | None = None


class AttemptLimits(Payload):
    """At most `count` remedies of one node are requested within `period_s`; after that a person has to look."""

    count: Annotated[int, Field(ge=1, le=ATTEMPTS_MAX)] = 3
    period_s: Annotated[int, Field(ge=1, le=PERIOD_MAX_S)] = 24 * 3600


@registry.event("remediation", "rules-applied", _BY_OPERATORS, introduced=True)
class RemediationRulesApplied(Payload):
    """The remedies from here on, all of them; `digest` is their version: the SHA-256 of their canonical form.

    A node that may get a remedy gets it if that was so no longer than `max_event_age_s` before the service comes to it.
    """

    digest: Digest
    file: Name
    remedies: Annotated[tuple[Remedy, ...], Field(max_length=REMEDIES_MAX)] = ()
    attempts: AttemptLimits = AttemptLimits.model_construct()
    max_event_age_s: Annotated[int, Field(ge=1, le=EVENT_AGE_MAX_S)] = 600


@registry.event("remediation", "assessed", _BY_DECIDER, introduced=True)
class RemediationAssessed(Payload):
    """The service has come to what `cause` left to be decided about the node: what follows is decided here."""

    cause: EventId


class TreatedFault(Payload):
    """A fault that a remedy is for, and the report of it."""

    monitor: Name
    check: Name
    entity: str = ""
    report: EventId


class RemedyObject(Payload):
    """The object to create; `manifest` is all of it, in JSON."""

    api_version: Name
    kind: Name
    resource: Name
    namespace: Name | None = None
    name: Name
    manifest: Manifest

    @property
    def content(self) -> dict[str, Any]:
        """The object."""
        found: dict[str, Any] = orjson.loads(self.manifest)
        return found


@registry.event("remediation", "requested", _BY_DECIDER, introduced=True)
class RemediationRequested(Payload):
    """An intent: the Node with this uid gets a remedy, as the object says; the event's id is that of the remediation.

    `attempt` counts those of the node within the period of the rules, whose version is `rules`. `follows` is the
    remediation that came to nothing before, where this is its escalation.
    """

    uid: Name
    remedy: RemedyName
    group: Name
    scope: Scope
    device: Uuid | None = None
    action: Name
    faults: Annotated[tuple[TreatedFault, ...], Field(min_length=1, max_length=FAULTS_MAX)]
    attempt: Number
    follows: EventId | None = None
    rules: Digest
    object: RemedyObject
    succeeded: OutcomeSign
    failed: OutcomeSign | None = None
    timeout_s: Annotated[int, Field(ge=1, le=TIMEOUT_MAX_S)]
    retention_s: Annotated[int, Field(ge=0, le=RETENTION_MAX_S)] | None = None


@registry.event("remediation", "cancelled", _BY_DECIDER, introduced=True)
class RemediationCancelled(Payload):
    """The object is not to be created any more. One that is there already stays, and its outcome is recorded.

    `Healthy`: none of its faults stands. `Released`: the node is no longer set aside for them.
    `Draining`: pods are to leave the node first; it is requested again when they have left.
    """

    intent: EventId
    reason: Literal["Healthy", "Released", "Draining"]


@registry.event("remediation", "attention-requested", _BY_DECIDER, introduced=True)
class RemediationAttentionRequested(Payload):
    """A person has to look at the node: gpuledger does nothing more about these faults.

    `AttemptsExhausted`: the node had its remedies of the period. `NoEscalation`: a remedy came to nothing, and none
    follows. `NoDevice`: the remedy is for one card, and the report does not say which. `Refused`: the API server did
    not take the object, so nothing was tried that could escalate. `NotDrained`: the drain that the remedy waits for was
    given up with pods left, and begins anew only where somebody asks for it.
    """

    group: Name
    remedy: RemedyName
    reason: Literal["AttemptsExhausted", "NoEscalation", "NoDevice", "Refused", "NotDrained"]
    message: Text = ""
    faults: Annotated[tuple[TreatedFault, ...], Field(max_length=FAULTS_MAX)] = ()


@registry.event("remediation", "retry-requested", _BY_OPERATORS, introduced=True)
class RemediationRetryRequested(Payload):
    """An operator has mended what kept the node from its remedy, so that its faults may get one again.

    `remediation`: only those that it was for; None: all faults of the node where a person had to look, or that went
    stale. The attempts of the node before count no more.
    """

    remediation: EventId | None = None
    reason: Annotated[str, StringConstraints(min_length=1, max_length=TEXT_LENGTH_MAX)]


@registry.event("remediation", "created", _BY_WRITER, introduced=True)
class RemediationCreated(Payload):
    """The object is there, with this uid."""

    intent: EventId
    uid: Name


@registry.event("remediation", "finished", _BY_WRITER, introduced=True)
class RemediationFinished(Payload):
    """An outcome: what became of the object that was created, or that the API server refuses to create.

    `Failed` is what the object shows, or that somebody deleted it. `Refused`: it could not be created.
    """

    intent: EventId
    result: Literal["Succeeded", "Failed", "TimedOut", "Refused"]
    message: Text = ""


@registry.event("remediation", "superseded", _BY_WRITER, introduced=True)
class RemediationSuperseded(Payload):
    """An outcome: the object was not created, and will not be.

    `Cancelled`: see `RemediationCancelled`. `NodeGone`: the Node with its uid is gone. `NotSetAside`: it is neither
    cordoned nor tainted any more. `Expired`: the intent was too old by the time that it could be carried out.
    `Imported`: it is history.
    """

    intent: EventId
    reason: Literal["Cancelled", "NodeGone", "NotSetAside", "Expired", "Imported"]
    message: Text = ""


@registry.event("remediation", "object-deleted", _BY_WRITER, introduced=True)
class RemediationObjectDeleted(Payload):
    """The object of a remediation that is over is gone: its retention is over, or somebody else deleted it."""

    intent: EventId
