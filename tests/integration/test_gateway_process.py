"""The health gateway as a process with the login of its role: monitors report while it is killed and started again."""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from gpuledger.ledger.jetstream import connect_ledger
from gpuledger.ledger.permissions import Role
from gpuledger.runtime import gateway_settings as names
from gpuledger.runtime.settings import KUBECONFIG, METRICS_LISTEN, NATS_CREDENTIALS, NATS_URL
from support.gateway import ANYWHERE, NAMESPACE, Gateways, gateways
from support.health_monitor import Answer
from support.ledgers import make_ledger
from support.paths import ROOT
from support.ports import free_ports
from support.roles import ADMIN, PASSWORD, role_server, url_of
from support.up import COMMAND
from support.waiting import eventually

REPORTS = 40
OK = Answer("OK")


class Process:
    """The gateway's process; `environ` has its settings."""

    def __init__(self, environ: dict[str, str]) -> None:
        self._environ = environ
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self.output = ""

    async def start(self) -> None:
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            *COMMAND, "health-gateway", env=self._environ, cwd=ROOT, stdout=pipe, stderr=asyncio.subprocess.STDOUT
        )
        self.output = ""
        self._reading = asyncio.create_task(self._read())

        async def is_up() -> bool:
            assert self._process is not None, "it was started"
            assert self._process.returncode is None, self.output
            return " is up: " in self.output

        await eventually(is_up)

    async def end(self, *, kill: bool) -> None:
        if self._process is not None and self._process.returncode is None:
            (self._process.kill if kill else self._process.terminate)()
            await self._process.wait()
        if self._reading is not None:
            await self._reading

    async def _read(self) -> None:
        assert self._process is not None, "it was started"
        assert self._process.stdout is not None, "it is a pipe"
        while line := await self._process.stdout.readline():
            self.output += line.decode()


@pytest.fixture
async def here(root: Path) -> AsyncIterator[tuple[Gateways, dict[str, str]]]:
    async with AsyncExitStack() as stack:
        nats = stack.enter_context(role_server())
        url = url_of(nats, ADMIN)
        await make_ledger(url)
        ledger = await stack.enter_async_context(connect_ledger(url, name="test"))
        here = await stack.enter_async_context(gateways(root, ledger))
        login = root / "gateway.login"
        login.write_text(f"user: gpuledger-{Role.GATEWAY}\npassword: {PASSWORD}\n")
        (port,) = free_ports(1)
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("GPULEDGER", "NATS"))}
        yield (
            here,
            {
                **plain,
                NATS_URL: f"nats://{nats.address}",
                NATS_CREDENTIALS: str(login),
                names.LISTEN: f"127.0.0.1:{port}",
                names.LISTEN_MTLS: ANYWHERE,
                names.CERTIFICATE: str(root / "tls.crt"),
                names.KEY: str(root / "tls.key"),
                names.CLIENT_CA: str(root / "clients.crt"),
                names.REPORTERS: NAMESPACE,
                METRICS_LISTEN: ANYWHERE,
                KUBECONFIG: str(here.server.kubeconfig),
            },
        )


@pytest.mark.long
@pytest.mark.one_stream("the role may not put what partitions record into the log")
async def test_reports_survive_kills_and_none_acts_twice(here: tuple[Gateways, dict[str, str]]) -> None:
    place, environ = here
    port = int(environ[names.LISTEN].rpartition(":")[2])
    gateway, token, refused = Process(environ), await place.token("n1"), Counter[str]()
    await gateway.start()
    sent = asyncio.Event()

    async def report() -> None:
        async with place.monitor(port, token=token) as monitor:
            for number in range(REPORTS):
                event: dict[str, Any] = {
                    "message": f"report {number}", "checkName": f"check {number}",
                    "generatedTimestamp": {"seconds": 1_790_000_000 + number},
                }  # fmt: skip
                while (answer := await monitor.report(event)) != OK:
                    refused[answer.status] += 1
                    await asyncio.sleep(0.05)
                if number % 10 == 5:
                    sent.set()

    try:
        reporting = asyncio.create_task(report())
        for _ in range(3):
            await sent.wait()
            sent.clear()
            await gateway.end(kill=True)
            await gateway.start()
        await reporting
        assert set(refused) <= {"UNAVAILABLE"}
    finally:
        await gateway.end(kill=False)
    events = await place.events()
    messages = Counter(event.data.message for event in events)  # type: ignore[attr-defined]
    assert set(messages) == {f"report {number}" for number in range(REPORTS)}
    assert len({event.id for event in events}) == REPORTS, "what is there twice is one event"
    for epoch in {event.epoch for event in events}:
        numbers = [event.number for event in events if event.epoch == epoch]
        assert numbers == list(range(1, len(numbers) + 1)), "none is missing"


@pytest.mark.one_stream("the role may not put what partitions record into the log")
async def test_a_process_that_is_stopped_records_what_it_counted(here: tuple[Gateways, dict[str, str]]) -> None:
    place, environ = here
    port = int(environ[names.LISTEN].rpartition(":")[2])
    gateway = Process(environ)
    await gateway.start()
    async with place.monitor(port, token=await place.token("n1")) as monitor:
        for number in range(5):
            assert await monitor.report({"generatedTimestamp": {"seconds": 1_790_000_000 + number}}) == OK
    await gateway.end(kill=False)
    assert [one.count for one in await place.reports()] == [1, 4]
