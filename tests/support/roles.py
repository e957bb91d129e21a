"""A NATS server whose users have exactly the permissions that `gpuledger permissions` prints, one for each role."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

from gpuledger.ledger.permissions import Role, role_text
from gpuledger.local.servers.ports import HOST
from support.nats_logins import WrittenServer, written_server

ADMIN = "admin"
PASSWORD = "p"


def url_of(server: WrittenServer, user: str) -> str:
    """The URL of a role's user, or of one who may do anything."""
    name = user if user == ADMIN else f"gpuledger-{user}"
    return f"nats://{name}:{PASSWORD}@{HOST}:{server.port}"


@contextmanager
def role_server() -> Iterator[WrittenServer]:
    """The server, with nothing in it."""
    with written_server(role_logins()) as server:
        yield server


def role_logins() -> str:
    """The server's users."""
    users = [f"{{ user: {ADMIN}, password: {PASSWORD} }}"]
    users += [role_text(role).replace("{", f"{{ password: {json.dumps(PASSWORD)}", 1) for role in Role]
    return "authorization: { users: [ " + ",\n".join(users) + " ] }"
