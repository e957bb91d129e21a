"""Permissions on a NATS server, of agents and of every other role, as data and as text for its configuration. Pure.

An agent gets the least that `gpuledger.ledger.edge` needs, for one node only: with its credentials one can write in its
name, read the devices that pools desire of it, its shared devices and what pods hold of them, and the node's labels,
and learn whether names share a subject. Of the other roles, only those that are for it may create, alter, purge or
delete a stream. `docs/agent-credentials.md` and `docs/service-credentials.md` explain each line.
"""

import json
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from gpuledger.events.node import NodeDevicesWanted, NodeLabelled
from gpuledger.events.payload import Payload
from gpuledger.events.publishing import Rule, SourceKind
from gpuledger.events.rule import rule_subject
from gpuledger.events.shares import NodeDevicesAllocated
from gpuledger.events.sharing import NodeDevicesShared
from gpuledger.events.subjects import NODE, ROOT, SERVICE, escape
from gpuledger.ledger.partitions import ANY_PART, ORDER_ROOT

NAME_TEMPLATE: Final = "{{name()}}"
"""A scoped signing key puts the user's name here in the JWTs that it signs; it must be a whole token."""

LEDGER_ACCOUNT: Final = "LEDGER"
AGENTS_ACCOUNT: Final = "AGENTS"
CALLOUT_ACCOUNT: Final = "AUTH"
"""The account of the auth callout service, which nobody else may enter: the server sends it every login."""

CALLOUT_USER: Final = "gpuledger-callout"
CALLOUT_SUBJECT: Final = "$SYS.REQ.USER.AUTH"
"""The subject on which a server asks about a login."""

ANSWER_EXPIRES_S: Final = 10
"""How long after a question the callout's user may answer it, once; it may publish nothing else."""

API: Final = "$JS.API"
IMPORTED_API: Final = "$JS.LEDGER.API"
"""The API of the ledger's account as imported by the agents' account, whose own is the first."""

_STREAM_NAMES: Final = "STREAM.NAMES"
STREAM_NAMES: Final = (f"{API}.{_STREAM_NAMES}", f"{IMPORTED_API}.{_STREAM_NAMES}")

SHARED_SUBJECTS_SUBJECT: Final = rule_subject(Rule.SHARED_SUBJECTS)
"""Where an agent learns whether names share a subject."""

_READ: Final = (
    f"{API}.INFO",
    f"{API}.{_STREAM_NAMES}",
    f"{API}.STREAM.LIST",
    f"{API}.STREAM.INFO.*",
    f"{API}.STREAM.MSG.GET.*",
    f"{API}.DIRECT.GET.*",
    f"{API}.DIRECT.GET.*.>",
    f"{API}.CONSUMER.CREATE.*.*.>",
    f"{API}.CONSUMER.DELETE.*.*",
    "$JS.FC.>",
)
"""To find a stream and read it by consumers of one's own, whose flow control the reader answers."""

RESTORE_ROOT: Final = "restoring"
"""The first token of the subjects by which a restore records events of everybody."""

CLOSING_ROOT: Final = "closing"
"""The first token of the subjects by which the command that closes a generation begins the next one."""

_INBOXES: Final = ("_INBOX.>",)

_COPIES: Final = ("$JS.SNAPSHOT.ACK.>", "$JS.SNAPSHOT.RESTORE.>")
"""To acknowledge the parts of a stream that is copied, and to send those of one that is given back."""

STREAM_CHANGES: Final = ("CREATE", "UPDATE", "PURGE", "DELETE", "SNAPSHOT", "RESTORE")
"""What may be done to a stream as a whole."""

SERVICE_KINDS: Final = tuple(
    kind
    for kind in SourceKind
    if kind not in (SourceKind.AGENTS, SourceKind.IMPORTERS, SourceKind.OPERATORS, SourceKind.GATEWAYS)
)


class Role(StrEnum):
    """Who works with the ledger, besides agents."""

    SERVICES = "services"
    """`gpuledger up`: reads everything, and records what its services decide and watch."""

    GATEWAY = "gateway"
    """`gpuledger health-gateway`: records the reports of health monitors, and reads."""

    PREFLIGHT = "preflight"
    """`gpuledger serve preflight`: records what becomes of gangs, and reads."""

    EXTENDER = "extender"
    """`gpuledger serve extender`: records which pods get which devices, and reads."""

    READER = "reader"
    """A person who reads: `get`, `log tail`, `verify`."""

    IMPORTER = "importer"
    """`gpuledger import`."""

    SKIPPER = "skipper"
    """`gpuledger log skip`."""

    OPERATOR = "operator"
    """`gpuledger migrate`, which creates the stream, `log archive close`, which begins the next one, and `log backup`
    and `log restore`, which copy it."""

    RESTORER = "restorer"
    """`gpuledger log import`, which records events in everybody's name; for the time of a restore."""


class Permissions(NamedTuple):
    """Subjects that a user may publish and subscribe to; all others are refused."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


def agent_permissions(node: str) -> Permissions:
    """The permissions that the agent of a node needs.

    Raises:
        SubjectError: no subject can hold the node's name.
    """
    return _permissions(escape(node))


def role_permissions(role: Role) -> Permissions:
    """The permissions that a role needs; each of them reads."""
    return Permissions((*_WRITE[role], *_READ), _INBOXES)


def role_text(role: Role) -> str:
    """The user of a role as an entry of `users` in the server's configuration; its secret is to be added."""
    return _user_text(role_user(role), role_permissions(role))


def role_user(role: Role) -> str:
    """The name of a role's user."""
    return f"gpuledger-{role}"


def templated_permissions() -> Permissions:
    """The same for a scoped signing key; a user's name is then `user_name` of its node."""
    return _permissions(NAME_TEMPLATE)


def user_name(node: str) -> str:
    """A node's name as one token of a subject: `a.b` is `a%2Eb`.

    Raises:
        SubjectError: no subject can hold the node's name.
    """
    return escape(node)


def inbox_prefix(node: str) -> str:
    """The beginning of the subjects that receive answers for a node's agent."""
    return _inbox(escape(node))


def desired_devices_subject(node: str) -> str:
    """The subject of a node's desired devices (`NodeDevicesWanted`)."""
    return _of_node(NodeDevicesWanted, escape(node))


def shared_devices_subject(node: str) -> str:
    """The subject of the devices that a node shares (`NodeDevicesShared`)."""
    return _of_node(NodeDevicesShared, escape(node))


def allocated_devices_subject(node: str) -> str:
    """The subject of what pods hold of a node's shared devices (`NodeDevicesAllocated`)."""
    return _of_node(NodeDevicesAllocated, escape(node))


def node_labels_subject(node: str) -> str:
    """The subject of a node's labels (`NodeLabelled`)."""
    return _labels(escape(node))


def written_filter(node: str) -> str:
    """What matches the subjects of what a node's agent records."""
    return _written_by(escape(node))


def node_list_filters() -> tuple[str, ...]:
    """What matches the subjects of all nodes' lists that agents follow."""
    return _lists("*")


def node_labels_filter() -> str:
    """What matches the subjects of all nodes' labels."""
    return _labels("*")


def direct_get(stream: str, subject: str) -> str:
    """The subject of requests for the newest message of a subject."""
    return f"{API}.DIRECT.GET.{stream}.{subject}"


def user_text(node: str) -> str:
    """The user of a node's agent as an entry of `users` in the server's configuration; its secret is to be added.

    Raises:
        SubjectError: no subject can hold the node's name.
    """
    return _user_text(node, agent_permissions(node))


def permissions_text(permissions: Permissions) -> str:
    """The permissions as `permissions` of a user in the server's configuration."""
    return (
        "permissions: {\n"
        f"  publish: {{ allow: [{_listed(permissions.publish, 4)}\n  ] }}\n"
        f"  subscribe: {{ allow: [{_listed(permissions.subscribe, 4)}\n  ] }}\n"
        "}"
    )


def exports_text() -> str:
    """The exports of the ledger's account to the agents' account, in the server's configuration."""
    lines = [f"{{ service: {_quoted(subject)}, accounts: [{AGENTS_ACCOUNT}] }}" for subject, _ in exported_services()]
    lines += [f"{{ stream: {_quoted(subject)}, accounts: [{AGENTS_ACCOUNT}] }}" for subject in exported_streams()]
    return "exports: [\n" + "".join(f"  {line}\n" for line in lines) + "]"


def imports_text() -> str:
    """The imports of the agents' account from the ledger's, in the server's configuration."""
    lines = [
        f"{{ service: {{ account: {LEDGER_ACCOUNT}, subject: {_quoted(subject)} }}, to: {_quoted(local)} }}"
        for subject, local in exported_services()
    ]
    lines += [
        f"{{ stream: {{ account: {LEDGER_ACCOUNT}, subject: {_quoted(subject)} }} }}" for subject in exported_streams()
    ]
    return "imports: [\n" + "".join(f"  {line}\n" for line in lines) + "]"


def exported_services() -> tuple[tuple[str, str], ...]:
    """Subjects of the ledger's account that answer agents, each with its name in the agents' account."""
    written = _in_any_part(_written_by("*"))
    read = (
        *(direct_get("*", one) for one in _lists("*")),
        direct_get("*", _labels("*")),
        direct_get("*", SHARED_SUBJECTS_SUBJECT),
        _READ_ORDER,
    )
    return (*((one, one) for one in written), STREAM_NAMES, *((one, one) for one in read))


def exported_streams() -> tuple[str, ...]:
    """Subjects of the ledger's account that agents may listen to in theirs; permissions confine each to its own."""
    return tuple(subject for one in _lists("*") for subject in _in_any_part(one))


def _written(*services: str) -> tuple[str, ...]:
    return tuple(one for service in services for one in _in_any_part(f"{ROOT}.{SERVICE}.{service}.>"))


def _in_any_part(subject: str) -> tuple[str, str]:
    """A subject as it is in a ledger of one partition, and as it is in any of several."""
    return subject, f"{ANY_PART}{subject}"


_READ_ORDER: Final = direct_get("*", f"{ORDER_ROOT}.*")
"""To see whether what a partition has recorded is in the log yet."""

_PUT_IN_ORDER: Final = f"{ORDER_ROOT}.*"
"""To put into the log what the partitions have recorded."""


_CHANGE_STREAMS: Final = (*(f"{API}.STREAM.{change}.*" for change in STREAM_CHANGES), *_COPIES)

_WRITE: Final[Mapping[Role, tuple[str, ...]]] = {
    Role.SERVICES: (*_written(*SERVICE_KINDS), _PUT_IN_ORDER),
    Role.GATEWAY: _written(SourceKind.GATEWAYS),
    Role.PREFLIGHT: _written(SourceKind.PREFLIGHT),
    Role.EXTENDER: _written(SourceKind.EXTENDER),
    Role.READER: (),
    Role.IMPORTER: _written("import"),
    Role.SKIPPER: _written(SourceKind.OPERATORS),
    Role.OPERATOR: (f"{CLOSING_ROOT}.>", _PUT_IN_ORDER, *_CHANGE_STREAMS),
    Role.RESTORER: (f"{RESTORE_ROOT}.>", _PUT_IN_ORDER, *_CHANGE_STREAMS),
}
"""What a role may do besides reading."""


def _user_text(user: str, permissions: Permissions) -> str:
    block = permissions_text(permissions).replace("\n", "\n  ")
    return f"{{\n  user: {_quoted(user)}\n  {block}\n}}"


def _permissions(token: str) -> Permissions:
    lists = _lists(token)
    return Permissions(
        publish=(
            *_in_any_part(_written_by(token)),
            *STREAM_NAMES,
            *(direct_get("*", one) for one in lists),
            direct_get("*", _labels(token)),
            direct_get("*", SHARED_SUBJECTS_SUBJECT),
            _READ_ORDER,
        ),
        subscribe=(f"{_inbox(token)}.>", *(subject for one in lists for subject in _in_any_part(one))),
    )


def _written_by(token: str) -> str:
    return f"{ROOT}.{NODE}.{token}.>"


def _lists(token: str) -> tuple[str, ...]:
    """The subjects of the lists that a node's agent follows."""
    return tuple(_of_node(model, token) for model in (NodeDevicesWanted, NodeDevicesShared, NodeDevicesAllocated))


def _labels(token: str) -> str:
    return _of_node(NodeLabelled, token)


def _of_node(model: type[Payload], token: str) -> str:
    return f"{model.PUBLISH_RULE.reserved_prefixes[0]}{model.AGGREGATE}.{token}.{model.EVENT}"


def _inbox(token: str) -> str:
    return f"_INBOX_node.{token}"


def _listed(subjects: Iterable[str], indent: int) -> str:
    return "".join(f"\n{' ' * indent}{_quoted(subject)}" for subject in subjects)


def _quoted(subject: str) -> str:
    return json.dumps(subject)
