"""Preflight checks report over TCP with the tokens of tenants' pods, while the ledger says that they run."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from gpuledger.api.kinds import PODS
from gpuledger.edge.kube.transport import KubeRequest
from gpuledger.events.envelope import Event, encode, nats_subject_of
from gpuledger.events.preflight import PodPreflightObserved, PreflightCheck
from gpuledger.ledger.api import Outgoing
from gpuledger.ledger.jetstream import JetStreamLedger
from support.gateway import ACCOUNT, TENANT, Gateways, gateways
from support.health_monitor import Answer, Monitor
from support.waiting import eventually

OK = Answer("OK")
CHECK = "preflight-dcgm-diag"
POD = f"{TENANT}/{ACCOUNT}-n1"
CARD = {"entityType": "GPU_UUID", "entityValue": "GPU-17"}
FAILED: dict[str, Any] = {"agent": "gpuledger-preflight", "checkName": CHECK, "entitiesImpacted": [CARD]}
PASSED = FAILED | {"isHealthy": True, "isFatal": False, "errorCode": [], "message": "passed"}
NUMBERS = count(1)


@pytest.fixture
async def here(root: Path, ledger: JetStreamLedger) -> AsyncIterator[Gateways]:
    async with gateways(root, ledger) as here:
        yield here


@asynccontextmanager
async def reporting(here: Gateways, port: int | None) -> AsyncIterator[Monitor]:
    """Whatever has the token of the tenant's pod."""
    async with here.monitor(port, token=await here.token("n1", namespace=TENANT)) as monitor:
        yield monitor


async def observe(here: Gateways, *, source: str = "/watchers/preflightpods", **fields: Any) -> None:
    """Record what watchers see of the pod, whose check runs unless the fields say otherwise."""
    pod = await here.kube.send(KubeRequest("read the pod", "GET", f"{PODS.path(TENANT)}/{ACCOUNT}-n1"))
    now = datetime.now(UTC)
    given: dict[str, Any] = {"name": "dcgm-diag", "state": "running", "started_at": now} | fields
    check = PreflightCheck(**given)
    data = PodPreflightObserved(uid=pod["metadata"]["uid"], node="n1", checks=(check,))
    number = next(NUMBERS)
    event = Event(f"pod-{number}", source, data.TYPE, POD, now, data, "e", number)
    await here.ledger.publish(Outgoing(nats_subject_of(event), event.id, encode(event)))


async def answers(monitor: Monitor, report: dict[str, Any], status: str) -> None:
    """Return once a report has this answer."""

    async def has_it() -> bool:
        return (await monitor.report(report)).status == status

    await eventually(has_it)


async def test_a_check_reports_while_it_runs_and_the_workload_never(here: Gateways) -> None:
    async with here.serving(preflight_namespaces=frozenset({TENANT})) as ports, reporting(here, ports.tokens) as pod:
        answer = await pod.report(PASSED)
        assert (answer.status, "does not say yet" in answer.message) == ("UNAVAILABLE", True)
        await observe(here)
        await answers(pod, PASSED, "OK")
        assert await pod.report(PASSED) == OK, "it is sent again"
        answer = await pod.report(FAILED)
        assert (answer.status, "has reported its result already" in answer.message) == ("PERMISSION_DENIED", True)
        await observe(here, state="ended", exit_code=0)
        await answers(pod, PASSED, "PERMISSION_DENIED")
        await observe(here, attempt=1)
        await answers(pod, FAILED, "OK")
    assert {(one.reporter, one.healthy) for one in await here.reports()} == {(POD, True), (POD, False)}


async def test_a_check_that_failed_reports_when_it_is_tried_again(here: Gateways) -> None:
    async with here.serving(preflight_namespaces=frozenset({TENANT})) as ports, reporting(here, ports.tokens) as pod:
        await pod.report({})
        await observe(here)
        await answers(pod, FAILED, "OK")
        await observe(here, state="ended", exit_code=1, ended_at=datetime.now(UTC))
        await answers(pod, PASSED, "OK")
        assert (await pod.report(FAILED)).status == "PERMISSION_DENIED"


async def test_a_check_reports_nothing_but_its_own_result(here: Gateways) -> None:
    async with here.serving(preflight_namespaces=frozenset({TENANT})) as ports, reporting(here, ports.tokens) as pod:
        await pod.report({})
        await observe(here)
        await answers(pod, FAILED, "OK")
        wrong: list[dict[str, Any]] = [
            {"checkName": "preflight-other"}, {"agent": "other"}, {"nodeName": "n2"}, {"entitiesImpacted": []},
        ]  # fmt: skip
        for fields in wrong:
            assert (await pod.report(FAILED | fields)).status == "PERMISSION_DENIED", fields


async def test_only_what_watchers_record_counts(here: Gateways) -> None:
    async with here.serving(preflight_namespaces=frozenset({TENANT})) as ports, reporting(here, ports.tokens) as pod:
        await pod.report({})
        await observe(here, source="/nodes/n1/agent")
        await observe(here, state="waiting", started_at=None)
        assert (await pod.report(FAILED)).status == "UNAVAILABLE"


async def test_a_result_that_one_replica_took_closes_the_check_at_another(here: Gateways) -> None:
    namespaces = frozenset({TENANT})
    async with here.serving(preflight_namespaces=namespaces) as one, reporting(here, one.tokens) as first:
        await first.report({})
        await observe(here)
        await answers(first, PASSED, "OK")
        async with here.serving(preflight_namespaces=namespaces) as two, reporting(here, two.tokens) as second:
            assert (await second.report(FAILED)).status == "PERMISSION_DENIED"
            assert await second.report(PASSED) == OK


async def test_without_the_namespace_a_tenant_reports_nothing(here: Gateways) -> None:
    async with here.serving() as ports, reporting(here, ports.tokens) as pod:
        await observe(here)
        assert (await pod.report(PASSED)).status == "PERMISSION_DENIED"
