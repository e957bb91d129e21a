"""The permissions of a node's agent on a NATS server, as data and as text for the server's configuration. Pure.

It is the least that `gpuledger.ledger.edge` needs, for one node only: with an agent's credentials one can write in this
node's name and read the devices that pools desire of it. `docs/agent-credentials.md` explains each line.
"""

import json
from collections.abc import Iterable
from typing import Final, NamedTuple

from gpuledger.events.node import NodeDevicesWanted
from gpuledger.events.subjects import NODE, ROOT, escape

NAME_TEMPLATE: Final = "{{name()}}"
"""A scoped signing key puts the user's name here in the JWTs that it signs; it must be a whole token."""

LEDGER_ACCOUNT: Final = "LEDGER"
AGENTS_ACCOUNT: Final = "AGENTS"

API: Final = "$JS.API"
IMPORTED_API: Final = "$JS.LEDGER.API"
"""The API of the ledger's account as imported by the agents' account, whose own is the first."""

_STREAM_NAMES: Final = "STREAM.NAMES"
STREAM_NAMES: Final = (f"{API}.{_STREAM_NAMES}", f"{IMPORTED_API}.{_STREAM_NAMES}")


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
    return _desired(escape(node))


def direct_get(stream: str, subject: str) -> str:
    """The subject of requests for the newest message of a subject."""
    return f"{API}.DIRECT.GET.{stream}.{subject}"


def user_text(node: str) -> str:
    """The user of a node's agent as an entry of `users` in the server's configuration; its secret is to be added.

    Raises:
        SubjectError: no subject can hold the node's name.
    """
    block = permissions_text(agent_permissions(node)).replace("\n", "\n  ")
    return f"{{\n  user: {_quoted(node)}\n  {block}\n}}"


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
    lines = [f"{{ service: {_quoted(subject)}, accounts: [{AGENTS_ACCOUNT}] }}" for subject, _ in _services()]
    lines.append(f"{{ stream: {_quoted(_desired('*'))}, accounts: [{AGENTS_ACCOUNT}] }}")
    return "exports: [\n" + "".join(f"  {line}\n" for line in lines) + "]"


def imports_text() -> str:
    """The imports of the agents' account from the ledger's, in the server's configuration."""
    lines = [
        f"{{ service: {{ account: {LEDGER_ACCOUNT}, subject: {_quoted(subject)} }}, to: {_quoted(local)} }}"
        for subject, local in _services()
    ]
    lines.append(f"{{ stream: {{ account: {LEDGER_ACCOUNT}, subject: {_quoted(_desired('*'))} }} }}")
    return "imports: [\n" + "".join(f"  {line}\n" for line in lines) + "]"


def _permissions(token: str) -> Permissions:
    desired = _desired(token)
    return Permissions(
        publish=(f"{ROOT}.{NODE}.{token}.>", *STREAM_NAMES, direct_get("*", desired)),
        subscribe=(f"{_inbox(token)}.>", desired),
    )


def _services() -> Iterable[tuple[str, str]]:
    """Subjects of the ledger's account that answer agents, each with its name in the agents' account."""
    written, read = f"{ROOT}.{NODE}.*.>", direct_get("*", _desired("*"))
    return ((written, written), STREAM_NAMES, (read, read))


def _desired(token: str) -> str:
    model = NodeDevicesWanted
    return f"{model.PUBLISH_RULE.reserved_prefixes[0]}{model.AGGREGATE}.{token}.{model.EVENT}"


def _inbox(token: str) -> str:
    return f"_INBOX_node.{token}"


def _listed(subjects: Iterable[str], indent: int) -> str:
    return "".join(f"\n{' ' * indent}{_quoted(subject)}" for subject in subjects)


def _quoted(subject: str) -> str:
    return json.dumps(subject)
