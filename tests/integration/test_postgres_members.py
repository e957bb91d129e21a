"""Three PostgreSQL servers of a release, in pods of the image: one takes over with all that was committed."""

import asyncio
import os
import sys
from base64 import b64decode
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import orjson
import psycopg
import pytest

from gpuledger.api.bundled import BundledServers
from gpuledger.local.pods.patroni_config import LEADER_ROLE, ROLE_LABEL
from gpuledger.runtime.clock import random_secret, system_clock
from gpuledger.runtime.tasks import end
from gpuledger.tools.bundled.desired import desired_secrets
from support.chart import CHART, NAMESPACE, needs_helm
from support.pods.cluster import missing, pod_cluster
from support.servers import short_directory

pytestmark = [pytest.mark.long, needs_helm, pytest.mark.skipif(bool(missing()), reason=missing())]

COMMAND_MAX_S: Final = 420.0
STEP_MAX_S: Final = 180.0
COMMITS_MIN: Final = 20
NAME: Final = "lab-gpuledger-postgres"
MEMBERS: Final = {f"{NAME}-{number}" for number in range(3)}
VALUES: Final = (
    *("image.repository=localhost/gpuledger", "replicas=1"),
    *("agent.enabled=false", "restrictedAccess.enabled=false"),
)

OF_ONE: Final = """
read -r PGPASSWORD < /etc/gpuledger/server/password
export PGPASSWORD
exec /tmp/gpuledger/psql --host=/tmp/gpuledger --username=gpuledger --dbname=gpuledger --set ON_ERROR_STOP=1 \\
  --command="CREATE TABLE committed (n bigint PRIMARY KEY)" --command="INSERT INTO committed VALUES (0)"
"""
"""What one server has before there are three."""

Object = dict[str, Any]


class Kubectl:
    """Commands of an administrator."""

    def __init__(self, kubeconfig: Path) -> None:
        programs = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        self._environ = {**os.environ, "PATH": programs, "KUBECONFIG": str(kubeconfig)}

    async def run(self, *command: str, fails: bool = False) -> bytes:
        """The output of a command."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*command, env=self._environ, stdout=pipe, stderr=pipe)
        async with asyncio.timeout(COMMAND_MAX_S):
            output, errors = await process.communicate()
        assert fails or process.returncode == 0, (command, output, errors)
        return output

    async def __call__(self, *arguments: str, fails: bool = False) -> bytes:
        return await self.run("kubectl", "--namespace", NAMESPACE, *arguments, fails=fails)

    async def get(self, *arguments: str) -> Object:
        """An object, or a list of them."""
        found: Object = orjson.loads(await self("get", *arguments, "--output", "json"))
        return found

    async def members(self) -> dict[str, Object]:
        """The pods of the servers, by name."""
        found = await self.get("pods", "--selector", "app.kubernetes.io/component=postgres")
        return {one["metadata"]["name"]: one for one in found["items"]}

    async def leaders(self) -> list[str]:
        """The names of the pods that are ready and lead."""
        found = await self.members()
        return [name for name, one in found.items() if role(one) == LEADER_ROLE and is_ready(one)]


def role(pod: Object) -> str | None:
    return (pod["metadata"].get("labels") or {}).get(ROLE_LABEL)


def is_ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


class Writer:
    """Commits one row after another by the login of the services, and keeps the numbers that were acknowledged."""

    def __init__(self, kubectl: Kubectl, url: str, authority: Path) -> None:
        self._kubectl, self._url, self._authority = kubectl, url, authority
        self.acknowledged: list[int] = []
        self._next = 0

    async def connect(self) -> psycopg.AsyncConnection[Any]:
        """A session with the leader, whose certificate is verified for the Service's name."""
        (leader,) = await self._kubectl.leaders()
        address = (await self._kubectl.members())[leader]["status"]["podIP"]
        return await psycopg.AsyncConnection.connect(
            self._url,
            hostaddr=address,
            sslmode="verify-full",
            sslrootcert=str(self._authority),
            autocommit=True,
            connect_timeout=5,
        )

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            try:
                async with await self.connect() as connection:
                    while True:
                        self._next += 1
                        await connection.execute("INSERT INTO committed VALUES (%s)", (self._next,))
                        self.acknowledged.append(self._next)
            except (psycopg.Error, ValueError):
                await asyncio.sleep(0.5)

    async def kept(self) -> set[int]:
        """The numbers that the leader has."""
        async with await self.connect() as connection:
            return {n for (n,) in await (await connection.execute("SELECT n FROM committed")).fetchall()}


@pytest.fixture
def work() -> Iterator[Path]:
    with short_directory() as folder:
        folder.chmod(0o755)
        yield folder


@pytest.mark.timeout(900)
async def test_one_server_becomes_three_and_another_takes_over_with_all_that_was_committed(
    tmp_path: Path, work: Path
) -> None:
    async with pod_cluster(tmp_path, work, "w1", provisions=True) as kubeconfig:
        kubectl = Kubectl(kubeconfig)
        chart = ("lab", str(CHART), "--namespace", NAMESPACE, "--create-namespace")
        await kubectl.run("helm", "install", *chart, "--set", ",".join(VALUES))
        await holds(lambda: services_are_ready(kubectl))
        await kubectl("exec", f"{NAME}-0", "--", "sh", "-c", OF_ONE)

        three = ("--set", "postgresql.replicas=3", "--reset-then-reuse-values")
        refused = await kubectl.run("helm", "upgrade", *chart, *three, fails=True)
        assert b"has been upgraded" not in refused
        await kubectl("delete", "statefulset", NAME)
        await kubectl.run("helm", "upgrade", *chart, *three)
        await holds(lambda: all_are_ready(kubectl))
        await holds(lambda: services_are_ready(kubectl))

        secret = (await kubectl.get("secret", "lab-gpuledger-services"))["data"]
        authority = tmp_path / "authority.crt"
        authority.write_bytes(b64decode(secret["ca.crt"]))
        writer = Writer(kubectl, b64decode(secret["DATABASE_URL"]).decode(), authority)
        writing = asyncio.create_task(writer.run())
        try:
            await has_committed(writer, COMMITS_MIN)
            (former,) = await kubectl.leaders()
            await lose(kubectl, former)
            await holds(lambda: leads_beside(kubectl, former))
            await has_committed(writer, len(writer.acknowledged) + COMMITS_MIN)
        finally:
            await end([writing])
        assert {0, *writer.acknowledged} <= await writer.kept()

        await kubectl("taint", "node", "w1", "lost-")
        await holds(lambda: all_are_ready(kubectl))
        assert role((await kubectl.members())[former]) == "replica"
        await holds(lambda: services_are_ready(kubectl))

        authority.write_bytes(renew(work))
        await holds(lambda: is_served(writer))
        await follow_anew(kubectl)

        await kubectl("delete", "statefulsets,deployments", "--all")
        await holds(lambda: nothing_runs(kubectl))


async def holds(condition: Callable[[], Awaitable[bool]]) -> None:
    """Return when the condition holds."""
    async with asyncio.timeout(STEP_MAX_S):
        while not await condition():  # noqa: ASYNC110 - there is no notification
            await asyncio.sleep(0.5)


async def lose(kubectl: Kubectl, leader: str) -> None:
    """Kill all processes of the leader, and let no pod take its place."""
    await kubectl("taint", "node", "w1", "lost=leader:NoSchedule")
    await kubectl("exec", leader, "--", "sh", "-c", "kill -9 -1", fails=True)
    await kubectl("delete", "pod", leader, "--wait=false", "--grace-period=0", "--force")


async def has_committed(writer: Writer, number: int) -> None:
    async def has() -> bool:
        return len(writer.acknowledged) >= number

    await holds(has)


async def services_are_ready(kubectl: Kubectl) -> bool:
    """Whether the services, which work with the leader, are well."""
    found = await kubectl.get("deployment", "lab-gpuledger")
    return bool(found.get("status", {}).get("readyReplicas") == 1)


def renew(work: Path) -> bytes:
    """Give all members another authority, certificate and passwords, as the kubelet renews a Secret's files."""
    made = desired_secrets({}, BundledServers("lab-gpuledger", NAMESPACE), system_clock(), random_secret)["postgres"]
    folders = [path.parent for path in work.glob("pods/*/volumes/*/replication")]
    assert len(folders) >= len(MEMBERS), "those of pods that are gone may be there still"
    for folder in folders:
        for name in {*made} - {"password"}:
            (folder / name).write_bytes(made[name])
    return made["ca.crt"]


async def is_served(writer: Writer) -> bool:
    """Whether the leader shows a certificate of the authority that is trusted now."""
    try:
        async with await writer.connect():
            return True
    except psycopg.OperationalError:
        return False


async def follow_anew(kubectl: Kubectl) -> None:
    """End what the followers began with the former passwords; they come back with those of now."""
    (leader,) = await kubectl.leaders()

    async def asked(question: str) -> str:
        command = f'exec /tmp/gpuledger/psql --host=/tmp/gpuledger --username=postgres -Atc "{question}"'
        return (await kubectl("exec", leader, "--", "sh", "-c", command)).decode().strip()

    before = await asked("SELECT coalesce(max(pid), 0) FROM pg_stat_replication")
    assert await asked("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_replication") == "2"

    async def have_come_back() -> bool:
        return await asked(f"SELECT count(*) FROM pg_stat_replication WHERE pid > {before}") == "2"

    await holds(have_come_back)


async def nothing_runs(kubectl: Kubectl) -> bool:
    """Whether all servers have stopped, which takes them a while."""
    found = await kubectl.get("pods")
    return all(one["status"].get("phase") != "Running" for one in found["items"])


async def leads_beside(kubectl: Kubectl, former: str) -> bool:
    """Whether another member leads alone."""
    leaders = await kubectl.leaders()
    return len(leaders) == 1 and former not in leaders


async def all_are_ready(kubectl: Kubectl) -> bool:
    """Whether one leads, two follow, and each transaction waits for a follower."""
    found = await kubectl.members()
    roles = sorted(str(role(one)) for one in found.values() if is_ready(one))
    if found.keys() != MEMBERS or roles != [LEADER_ROLE, "replica", "replica"]:
        return False
    sync = await kubectl.get("configmap", f"{NAME}-sync")
    return bool(sync["metadata"].get("annotations", {}).get("sync_standby"))
