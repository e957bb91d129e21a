"""What every test may ask for: real servers, and hypothesis settings that suit them."""

import faulthandler
import gc
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Final

import pytest
import structlog
from hypothesis import settings

from gpuledger.local.servers.nats import NatsServer
from gpuledger.local.servers.postgres import PostgresServer
from gpuledger.runtime.garbage import YOUNG_OBJECTS_MAX
from gpuledger.runtime.settings import PARTITIONS
from gpuledger.runtime.telemetry import LOGGERS
from support import servers
from support.thoroughness import EXAMPLES, EXAMPLES_LONG

for profile, count in (("local", EXAMPLES), ("long", EXAMPLES_LONG)):
    settings.register_profile(
        profile, deadline=None, print_blob=True, derandomize="CI" in os.environ, max_examples=count
    )
settings.load_profile("local")

for name in ("NATS_URL", "DATABASE_URL", "KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
    os.environ.pop(name, None)  # no test may reach servers of the machine's own

if threading.current_thread() is threading.main_thread():
    # A shell lets what it starts in the background ignore SIGINT, and so would the commands that tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option by which the same tests run on ledgers of several partitions."""
    parser.addoption(
        "--partitions", type=int, default=1, help="how many partitions ledgers have, where a test does not say (1)"
    )


def pytest_configure(config: pytest.Config) -> None:
    """The ledgers that tests make, and commands and `up` that they start, read the variable."""
    os.environ.pop(PARTITIONS, None)
    if (partitions := config.getoption("--partitions")) > 1:
        os.environ[PARTITIONS] = str(partitions)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip, with their reasons, the tests that are about a ledger of one stream."""
    for item in items:
        if (mark := item.get_closest_marker("one_stream")) is None:
            continue
        if len(mark.args) != 1:
            raise pytest.UsageError(f"{item.nodeid}: one_stream takes one argument, the reason")
        if config.getoption("--partitions") > 1:
            item.add_marker(pytest.mark.skip(reason=f"needs one partition: {mark.args[0]}"))


EXIT_MAX_S: Final = 60.0
"""How long the process may take to end after the last test."""


gc.disable()  # until all is collected; nearly nothing of that is garbage, and it is walked again and again


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """What a failed test left running must not keep the process: it ends with the stacks of all its threads."""
    faulthandler.dump_traceback_later(EXIT_MAX_S, exit=True)


def pytest_collection_finish() -> None:
    """What was collected stays to the end; walking it again and again took a twentieth of the unit tests' time."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(YOUNG_OBJECTS_MAX, *gc.get_threshold()[1:])


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """A command that serves logs to a stream of its test, which is closed when the next one begins."""
    loggers = [logging.getLogger(name) for name in (None, LOGGERS)]
    before = [(logger.handlers, logger.level, logger.propagate) for logger in loggers]
    shown, hook, show_warning = structlog.get_config(), sys.unraisablehook, warnings.showwarning
    yield
    logging.captureWarnings(capture=False)
    for logger, kept in zip(loggers, before, strict=True):
        logger.handlers, logger.level, logger.propagate = kept
    sys.unraisablehook, warnings.showwarning = hook, show_warning
    structlog.configure(**shown)


@pytest.fixture(scope="session")
def nats_url() -> Iterator[str]:
    """A NATS server that all tests share; mind what others left in it, or ask for `clean_nats_url`."""
    with servers.nats_server() as server:
        yield server.url


@pytest.fixture
def clean_nats_url(nats_url: str) -> str:
    """The shared NATS server without any stream."""
    servers.delete_streams(nats_url)
    return nats_url


@pytest.fixture
def fresh_nats() -> Iterator[NatsServer]:
    """A NATS server for this test alone, to kill and to start again."""
    with servers.nats_server() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_server_url() -> Iterator[str]:
    """A PostgreSQL server that all tests share; `database_url` is a database of one's own on it."""
    with servers.postgres_server() as server:
        servers.forgo_durability(server.url)
        yield server.url


@pytest.fixture
def fresh_postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server for this test alone, to kill and to start again."""
    with servers.postgres_server() as server:
        yield server


@pytest.fixture
def database_url(postgres_server_url: str) -> Iterator[str]:
    """A new, empty database on the shared server."""
    with servers.fresh_database(postgres_server_url) as url:
        yield url
