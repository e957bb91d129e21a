"""Decides the configuration of Patroni, which runs each of three PostgreSQL servers.

Patroni reads the whole cluster's part (`CLUSTER`) from a ConfigMap, where a leader has to put it; the rest is in a file
of each member. Only the first member may begin a cluster: data that one server left on its volume are gone on
with, and the others never begin one beside it.
"""

from pathlib import Path
from typing import Any, Final, NamedTuple

from gpuledger.api.bundled import DATABASE, PATRONI_PORT
from gpuledger.local.pods.postgres_pod import AUTHORITY, CERTIFICATE, CONNECTIONS_MAX, KEY, SUPERUSER
from gpuledger.local.servers.errors import ServerStartError

REPLICATOR: Final = "replicator"
REWINDER: Final = "rewinder"
EVERYWHERE: Final = "*"
SCOPE_LABEL: Final = "cluster-name"
ROLE_LABEL: Final = "role"
LEADER_ROLE: Final = "primary"
"""The chart's Service leads to the pod with this role."""

CLUSTER: Final[dict[str, Any]] = {
    # A member whose lease ended is no leader any more, and another one is soon after. 20 is Patroni's least.
    "ttl": 20,
    "loop_wait": 3,
    "retry_timeout": 5,
    "primary_start_timeout": 30,
    # Only a member that has each acknowledged transaction takes over. While no other one is there, the leader goes on
    # alone, and nobody takes over from it.
    "synchronous_mode": True,
    # The leader stays while the API server is away, if all members agree.
    "failsafe_mode": True,
    "postgresql": {"use_pg_rewind": True, "parameters": {"max_connections": CONNECTIONS_MAX}},
}

_ACCESS: Final = (
    f"local all {SUPERUSER} trust",  # the socket's folder is the server's own
    f"local replication {REPLICATOR} scram-sha-256",
    f"local {DATABASE} all scram-sha-256",
    f"hostssl all {SUPERUSER} all reject",
    f"hostssl replication {REPLICATOR} all scram-sha-256",
    f"hostssl postgres {REWINDER} all scram-sha-256",
    f"hostssl all {REPLICATOR},{REWINDER} all reject",
    f"hostssl {DATABASE} all all scram-sha-256",
)


class Member(NamedTuple):
    """One of the servers of a cluster: the name of its pod, its host, and all hosts."""

    name: str
    host: str
    hosts: tuple[str, ...]
    namespace: str

    @property
    def cluster(self) -> str:
        """The cluster's name, which its ConfigMaps begin with."""
        return self.name.rpartition("-")[0]

    @property
    def begins(self) -> bool:
        """Whether this member may begin the cluster."""
        return self.host == self.hosts[0]


class Passwords(NamedTuple):
    """With which members log in to each other."""

    replication: str
    rewind: str


def member_of(name: str, hosts: tuple[str, ...], namespace: str) -> Member:
    """This member among all.

    Raises:
        ServerStartError: its host is not among them.
    """
    own = next((host for host in hosts if host.partition(".")[0] == name), None)
    if own is None:
        raise ServerStartError(f"No --peer begins with {name}. Give the hosts of all servers, this one included.")
    return Member(name, own, hosts, namespace)


class Place(NamedTuple):
    """Where a member has its data, what lasts as long as its server, and PostgreSQL's programs; its server's port."""

    data: Path
    runtime: Path
    programs: Path
    port: int

    @property
    def tls(self) -> dict[str, str]:
        """The certificate that the member shows."""
        return {"certfile": str(self.runtime / CERTIFICATE), "keyfile": str(self.runtime / KEY)}

    @property
    def authority(self) -> str:
        """Whom it trusts."""
        return str(self.runtime / AUTHORITY)


def configuration(member: Member, passwords: Passwords, settings: dict[str, str], place: Place) -> dict[str, Any]:
    """The member's file; `settings` are PostgreSQL's."""
    made: dict[str, Any] = {
        "scope": member.cluster,
        "name": member.name,
        "log": {"level": "INFO", "deduplicate_heartbeat_logs": True},
        "kubernetes": {
            "namespace": member.namespace,
            "labels": {"app.kubernetes.io/component": "postgres"},
            "scope_label": SCOPE_LABEL,
            "role_label": ROLE_LABEL,
            "leader_label_value": LEADER_ROLE,
            "use_endpoints": False,
        },
        # Whoever changes something shows a certificate of the authority; probes only read.
        "restapi": {
            "listen": f"{EVERYWHERE}:{PATRONI_PORT}",
            "connect_address": f"{member.host}:{PATRONI_PORT}",
            "cafile": place.authority,
            "verify_client": "optional",
            **place.tls,
        },
        "ctl": {"cacert": place.authority, **place.tls},
        "postgresql": _server(member, passwords, settings, place),
    }
    if member.begins:
        initdb = [{"encoding": "UTF8"}, {"locale": "C"}, "data-checksums"]
        made["bootstrap"] = {"dcs": CLUSTER, "initdb": initdb}
    return made


def _server(member: Member, passwords: Passwords, settings: dict[str, str], place: Place) -> dict[str, Any]:
    verified = {"sslmode": "verify-full", "sslrootcert": place.authority}
    return {
        "listen": f"{EVERYWHERE}:{place.port}",
        "connect_address": f"{member.host}:{place.port}",
        "data_dir": str(place.data),
        "bin_dir": str(place.programs),
        "pgpass": str(place.runtime / "pgpass"),
        "use_unix_socket": True,
        "use_unix_socket_repl": True,
        "basebackup": [{"checkpoint": "fast"}],  # a spread one takes minutes, in which the copy does not begin
        "remove_data_directory_on_rewind_failure": True,
        "remove_data_directory_on_diverged_timelines": True,
        "authentication": {
            "superuser": {"username": SUPERUSER},
            "replication": {"username": REPLICATOR, "password": passwords.replication, **verified},
            "rewind": {"username": REWINDER, "password": passwords.rewind, **verified},
        },
        "parameters": settings | {"unix_socket_permissions": "0700"},
        "pg_hba": list(_ACCESS),
    }
