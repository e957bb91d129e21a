"""`gpuledger up --only export` as a process that may only read the ledger, and is killed outright."""

import asyncio
import json
import signal
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from gpuledger.ledger.permissions import Role
from gpuledger.runtime.export_settings import EXPORT
from support.exporting import accepts, ids_of, reports
from support.ledgers import new_ledger
from support.nats_logins import WrittenServer
from support.projections import publish
from support.receiver import Reply, receiving
from support.roles import ADMIN, role_server, url_of
from support.up import DEADLINE_S, eventually, gpuledger, running_up, start


@pytest.fixture
def nats() -> Iterator[WrittenServer]:
    with role_server() as server:
        yield server


async def test_a_reader_exports_and_shows_how_far_it_is(nats: WrittenServer, url: str, tmp_path: Path) -> None:
    async with new_ledger(url_of(nats, ADMIN), puts_in_order=True) as ledger, receiving() as receiver:
        await publish(ledger, events := reports(range(1, 6)))
        variables = {
            "NATS_URL": url_of(nats, Role.READER),
            "DATABASE_URL": url,
            EXPORT: json.dumps({"url": receiver.url, "begin": "start"}),
        }

        def kill_one() -> None:
            with start(tmp_path, "up", "--only", "export", **variables) as process:
                try:
                    assert process.stdout is not None
                    while "/healthz" not in process.stdout.readline():
                        assert process.poll() is None
                finally:
                    process.send_signal(signal.SIGKILL)
                    process.communicate(timeout=DEADLINE_S)

        def run_another() -> None:
            with running_up(tmp_path, "--only", "export", **variables) as up:
                asyncio.run_coroutine_threadsafe(accepts(receiver, 5), loop).result(DEADLINE_S)
                found = up.becomes(200).document["export"]
                assert isinstance(found, dict)
                assert (found["state"], found["reason"]) == ("exporting", None)
                eventually(lambda: orjson.loads(up.get("/healthz")[1])["leaders"]["export"])
                assert b'gpuledger_export_events_total{outcome="delivered"}' in up.get("/metrics")[1]

        loop = asyncio.get_running_loop()
        await asyncio.to_thread(kill_one)
        await asyncio.to_thread(run_another)
        assert list(dict.fromkeys(receiver.ids)) == ids_of(events)


async def test_a_process_whose_export_has_stopped_is_not_ready(clean_nats_url: str, url: str, tmp_path: Path) -> None:
    async with new_ledger(clean_nats_url, puts_in_order=True) as ledger, receiving() as receiver:
        await publish(ledger, reports([1]))
        receiver.decide = lambda _: Reply(400)
        settings = json.dumps({"url": receiver.url, "begin": "start", "on_refusal": "stop"})
        variables = {"NATS_URL": clean_nats_url, "DATABASE_URL": url, EXPORT: settings}

        def run_one() -> None:
            with running_up(tmp_path, "--only", "export", **variables) as up:
                eventually(lambda: "The export stops before" in str(up.health().document["reason"]))
                assert up.health().status == 503
                assert b"gpuledger_export_lag_events NaN" in up.get("/metrics")[1]

        await asyncio.to_thread(run_one)


def test_without_an_endpoint_the_service_does_not_start(url: str, clean_nats_url: str, tmp_path: Path) -> None:
    servers = {"NATS_URL": clean_nats_url, "DATABASE_URL": url}
    done = gpuledger(tmp_path, "up", "--only", "export", **servers)
    assert done.returncode == 2
    assert b"--only export names no endpoint" in done.stderr
    done = gpuledger(tmp_path, "up", "--only", "export", **servers, **{EXPORT: '{"url": "ftp://a"}'})
    assert done.returncode != 0
    assert b"GPULEDGER_EXPORT cannot be used: url has to be a URL" in done.stderr
