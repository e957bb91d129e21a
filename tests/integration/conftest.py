"""Databases for integration tests: with every table, as the migrations make them."""

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from support import projections, servers


@pytest.fixture(scope="session")
def migrated_template(postgres_server_url: str) -> Iterator[str]:
    """The name of a database with every table, which nobody is connected to."""
    with servers.fresh_database(postgres_server_url) as url:
        yield urlsplit(projections.prepare(url)).path.removeprefix("/")


@pytest.fixture
def migrated_url(postgres_server_url: str, migrated_template: str) -> Iterator[str]:
    """A new database with every table and no row; copied, which is faster than to migrate it."""
    with servers.fresh_database(postgres_server_url, migrated_template) as url:
        yield url
