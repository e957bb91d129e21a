"""What a command does not use is not imported at its start, and is there for those that use it."""

import json
import os
import subprocess
import sys

import pytest

COMMANDS = ("gpuledger.cli.get.command", "gpuledger.cli.commands.timeline", "gpuledger.cli.commands.sql")
SLOW = (
    *("rich.console", "rich.progress", "pygments", "yaml", "pyarrow", "kubernetes", "alembic", "aiohttp"),
    *("gpuledger.deciders.inventory.decide", "gpuledger.compose.up"),
)
OF_OTHER_KINDS = (
    *("gpuledger.cli.get.availability_nouns", "gpuledger.cli.get.kube_objects", "gpuledger.tools.present.source"),
    *("gpuledger.deciders.pools.decide", "gpuledger.local.servers.embedded", "psutil"),
)
"""What rows of the projections' tables need not."""

BEGIN = "import json, sys\nimport gpuledger.cli.main\ngpuledger.cli.main.defer_imports()\n"
"""As a command begins: its entry point has imported what it shows errors with, a module of rich among it."""


def output_of(code: str, nats_url: str = "") -> object:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "NATS_URL": nats_url}
    command = [sys.executable, "-c", BEGIN + code]
    return json.loads(subprocess.run(command, env=environ, capture_output=True, timeout=60, check=True).stdout)


@pytest.mark.parametrize("module", COMMANDS)
def test_a_command_that_reads_imports_no_library_that_only_others_use(module: str) -> None:
    loaded = f"import {module}\nprint(json.dumps([n for n in {SLOW!r} if n in sys.modules]))"
    assert output_of(loaded) == []


def test_get_imports_of_other_kinds_no_more_than_their_words() -> None:
    loaded = "from gpuledger.cli.get.command import noun_to_get\nnoun_to_get('devices')\n"
    loaded += f"print(json.dumps([n for n in {OF_OTHER_KINDS!r} if n in sys.modules]))"
    assert output_of(loaded) == []
    found = "from gpuledger.cli.get.command import noun_to_get\nprint(json.dumps(noun_to_get('claim').view.kinds))"
    assert output_of(found) == "claims"


def test_what_structlog_did_not_import_is_there_for_others() -> None:
    found = "import structlog.dev, rich.console\nprint(json.dumps([structlog.dev.rich is None, rich.__name__]))"
    assert output_of(found) == [True, "rich"]


@pytest.mark.parametrize(
    ("nats_url", "has_websockets"),
    [("", False), ("nats://127.0.0.1:4222", False), ("nats://a:4222, wss://b:443", True), ("ws://127.0.0.1", True)],
)
def test_the_nats_client_has_websockets_where_a_server_is_reached_over_them(
    nats_url: str, has_websockets: bool
) -> None:
    found = "import aiohttp, nats.aio.transport as t\nprint(json.dumps([t.aiohttp is not None, aiohttp.__name__]))"
    assert output_of(found, nats_url) == [has_websockets, "aiohttp"]
