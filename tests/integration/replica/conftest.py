"""A PostgreSQL server and a hot standby of it, and a migrated database in both."""

from collections.abc import Iterator

import pytest

from gpuledger.local.servers.postgres import PostgresServer
from support import projections, servers
from support.standby import StandbyServer, resume_replay, url_on


@pytest.fixture(scope="package")
def primary() -> Iterator[PostgresServer]:
    with servers.postgres_server() as server:
        yield server


@pytest.fixture(scope="package")
def standby(primary: PostgresServer) -> Iterator[StandbyServer]:
    """It cancels at once whatever is in the way of its replay."""
    patience = {"max_standby_streaming_delay": "0", "hot_standby_feedback": "off"}
    with servers.short_directory() as folder, StandbyServer(folder / "standby", primary, patience) as server:
        yield server


@pytest.fixture(scope="package")
def template(primary: PostgresServer) -> Iterator[str]:
    with servers.fresh_database(primary.url) as url:
        yield servers.database_name(projections.prepare(url))


@pytest.fixture
def url(primary: PostgresServer, standby: StandbyServer, template: str) -> Iterator[str]:
    """A migrated database of the primary, which the standby follows."""
    resume_replay(standby)
    with servers.fresh_database(primary.url, template) as url:
        yield url
        resume_replay(standby)


@pytest.fixture
def replica_url(standby: StandbyServer, url: str) -> str:
    return url_on(standby, url)
