"""What health monitors report about a node and its hardware.

The fields are those of NVSentinel's `HealthEvent`, which monitors send to a gateway; who may send what is checked
there, and what it means is decided by whoever folds it.
"""

from typing import Annotated, Literal

from pydantic import AwareDatetime, Field

from gpuledger.events.device import ReportId, Uuid
from gpuledger.events.payload import Name, Number, Payload, Text
from gpuledger.events.publishing import Authority, DropClass, PublishRule, SourceKind
from gpuledger.events.recommended_action import NO_ACTION
from gpuledger.events.registry import registry

CODES_MAX = 64
ENTITIES_MAX = 256
METADATA_MAX = 64
METADATA_CHARACTERS_MAX = 1024

Strategy = Literal["execute-remediation", "store-only", "store-and-analyse"]
"""Whether a report may lead to changes of the cluster; only the first may."""


class HealthEntity(Payload):
    """What a report concerns, in the monitor's words: a type such as `GPU`, `GPU_UUID` or `PCI`, and its value."""

    type: Name
    value: Name


class Behaviour(Payload):
    """Whether a step that follows a report is forced or skipped, whatever the rules are."""

    force: bool = False
    skip: bool = False


@registry.event(
    "node",
    "health-reported",
    PublishRule((SourceKind.AGENTS, SourceKind.GATEWAYS), Authority.OWN_NODE, DropClass.NEVER),
    introduced=True,
)
class NodeHealthReported(Payload):
    """A monitor found something about the node that the subject names unhealthy, or healthy again.

    `monitor` is what NVSentinel calls the agent of an event, `reporter` is the pod (`<namespace>/<pod>`) that the
    report came from, or the name in its client certificate, None for a process of the host. The event's source is who
    took it: the node's agent over its socket, or `/gateways/health` over TCP. A report concerns its `entities`; a
    healthy one without entities concerns all of its check. `devices` are the cards among them, by UUID, as the node's
    agent knows them. `action` is the recommended one by its name, or by its number where that has no name here;
    `custom_action` says which one `CUSTOM` is. `count` identical reports are one event: they came between `first_at`
    and the event's own time.
    """

    monitor: Name
    reporter: Name | None = None
    check: Name
    component: Name | None = None
    healthy: bool
    fatal: bool
    message: Text = ""
    action: Name = NO_ACTION
    custom_action: Name | None = None
    codes: Annotated[tuple[Name, ...], Field(max_length=CODES_MAX)] = ()
    entities: Annotated[tuple[HealthEntity, ...], Field(max_length=ENTITIES_MAX)] = ()
    devices: Annotated[tuple[Uuid, ...], Field(max_length=ENTITIES_MAX)] = ()
    metadata: Annotated[
        dict[Name, Annotated[str, Field(max_length=METADATA_CHARACTERS_MAX)]], Field(max_length=METADATA_MAX)
    ] = {}
    strategy: Strategy = "execute-remediation"
    quarantine: Behaviour = Behaviour()
    drain: Behaviour = Behaviour()
    report: ReportId | None = None
    count: Number = 1
    first_at: AwareDatetime | None = None
