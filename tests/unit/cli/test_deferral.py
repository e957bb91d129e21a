"""What a command does not use is not imported at its start, and is there for those that use it."""

import json
import os
import subprocess
import sys

import pytest

COMMANDS = ("gpuledger.cli.get.command", "gpuledger.cli.commands.timeline", "gpuledger.cli.commands.sql")
SLOW = (
    *("aiohttp.client", "rich.console", "rich.progress", "pygments", "yaml", "pyarrow", "kubernetes", "alembic"),
    *("psutil._pslinux", "gpuledger.deciders.inventory.decide", "gpuledger.compose.up"),
)
BEGIN = "import json, sys\nfrom gpuledger.cli.deferral import defer_imports\ndefer_imports()\n"


def output_of(code: str) -> object:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", BEGIN + code]
    return json.loads(subprocess.run(command, env=environ, capture_output=True, timeout=60, check=True).stdout)


@pytest.mark.parametrize("module", COMMANDS)
def test_a_command_that_reads_imports_no_library_that_only_others_use(module: str) -> None:
    loaded = f"import gpuledger.cli.main, {module}\nprint(json.dumps([n for n in {SLOW!r} if n in sys.modules]))"
    assert output_of(loaded) == []


@pytest.mark.parametrize(
    "statement",
    [
        "import aiohttp\naiohttp.ClientSession\nfrom aiohttp.web import Application as found",
        "import aiohttp.web\nfound = aiohttp.web.Application",
        "from aiohttp import web\nfound = web.Application",
        "from aiohttp.web import Application as found",
        "import nats.aio.transport as t, aiohttp.web\nfound = t.aiohttp.web.Application",
    ],
)
def test_a_package_that_was_put_off_is_whole_for_whoever_imports_it(statement: str) -> None:
    whole = "import aiohttp.web\nprint(json.dumps([found is aiohttp.web.Application, type(aiohttp).__name__]))"
    assert output_of(f"{statement}\n{whole}") == [True, "module"]


def test_a_name_that_a_package_lacks_is_an_error_as_ever() -> None:
    assert output_of("import aiohttp\nprint(json.dumps([hasattr(aiohttp, 'nothing')]))") == [False]


def test_what_structlog_did_not_import_is_there_for_others() -> None:
    found = "import structlog.dev, rich.console\nprint(json.dumps([structlog.dev.rich is None, rich.__name__]))"
    assert output_of(found) == [True, "rich"]
