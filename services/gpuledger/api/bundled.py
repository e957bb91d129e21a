"""The servers that the chart brings: the names of their objects, and the keys of their Secrets.

The job that makes the Secrets, the commands that run the servers and the chart agree by this module. Data only.
"""

from typing import Final, NamedTuple

NATS_URL_KEY: Final = "NATS_URL"
DATABASE_URL_KEY: Final = "DATABASE_URL"
DATABASE_READ_URL_KEY: Final = "DATABASE_READ_URL"
CREDENTIALS_KEY: Final = "nats.creds"
PASSWORD_KEY: Final = "password"  # noqa: S105 - the name of a key
REPLICATION_KEY: Final = "replication"
REWIND_KEY: Final = "rewind"
SEED_KEY: Final = "seed"
ISSUER_KEY: Final = "issuer"
CALLOUT: Final = "callout"
GATEWAY: Final = "gateway"

NATS_PORT: Final = 4222
NATS_CLUSTER_PORT: Final = 6222
NATS_MONITORING_PORT: Final = 8222
POSTGRES_PORT: Final = 5432
PATRONI_PORT: Final = 8008
NATS_REPLICAS_MAX: Final = 3
POSTGRES_REPLICAS_MAX: Final = 3

DATABASE: Final = "gpuledger"
DATABASE_USER: Final = "gpuledger"


class BundledServers(NamedTuple):
    """Which servers a release brings, and what its objects are called."""

    name: str
    namespace: str
    nats: bool = True
    postgres: bool = True

    def secret(self, part: str) -> str:
        """The Secret of a server, or of one of its clients."""
        return f"{self.name}-{part}"

    @property
    def nats_host(self) -> str:
        """Where clients find NATS."""
        return f"{self.name}-nats.{self.namespace}.svc"

    @property
    def gateway_hosts(self) -> tuple[str, ...]:
        """Where health monitors find the gateway."""
        host = f"{self.name}-{GATEWAY}.{self.namespace}"
        return (f"{host}.svc", host, f"{host}.svc.cluster.local")

    @property
    def postgres_host(self) -> str:
        """Where clients find PostgreSQL."""
        return f"{self.name}-postgres.{self.namespace}.svc"

    def nats_peers(self, replicas: int = NATS_REPLICAS_MAX) -> tuple[str, ...]:
        """Where the servers of the NATS cluster find each other."""
        return self._peers("nats", replicas)

    def postgres_peers(self, replicas: int = POSTGRES_REPLICAS_MAX) -> tuple[str, ...]:
        """Where three PostgreSQL servers find each other."""
        return self._peers("postgres", replicas)

    def _peers(self, part: str, replicas: int) -> tuple[str, ...]:
        service = f"{self.name}-{part}-peers.{self.namespace}.svc"
        return tuple(f"{self.name}-{part}-{number}.{service}" for number in range(replicas))


AUTHORITY_PART: Final = "ca"
NATS_PART: Final = "nats"
POSTGRES_PART: Final = "postgres"
AGENTS_PART: Final = "agents"
DATABASE_CLIENTS: Final = ("services", "operator", "reader", "skipper")
"""Who works with both servers; by these names they log in to NATS."""

NATS_LOGINS: Final = (*DATABASE_CLIENTS, CALLOUT, GATEWAY)
"""The logins of the NATS server, which are the keys of their passwords."""

PARTS: Final = (AUTHORITY_PART, NATS_PART, POSTGRES_PART, AGENTS_PART, CALLOUT, GATEWAY, *DATABASE_CLIENTS)
"""The ends of the names of all Secrets."""
