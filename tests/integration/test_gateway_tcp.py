"""Health monitors report over TCP with TLS: real gRPC, certificates, a real ledger, and tokens that are reviewed."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn

import pytest

from gpuledger.edge.gateway import publisher
from gpuledger.edge.gateway.bounds import GatewayBounds
from gpuledger.edge.kube.pki import new_authority
from gpuledger.events.health import NodeHealthReported
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.ledger.own import publish_own
from support.gateway import LIFE, NAMESPACE, TENANT, Gateways, client_of, gateways, pem
from support.health_monitor import Answer
from support.nvsentinel import real_requests
from support.waiting import eventually

OK = Answer("OK")
AT = {"generatedTimestamp": {"seconds": 1_790_000_000}}


@pytest.fixture
async def here(root: Path, ledger: JetStreamLedger) -> AsyncIterator[Gateways]:
    async with gateways(root, ledger) as here:
        yield here


async def test_a_token_of_a_monitors_pod_reports_about_its_node(here: Gateways) -> None:
    async with here.serving() as ports, here.monitor(ports.tokens, token=await here.token("n1")) as monitor:
        assert await monitor.report({"nodeName": "n1"}) == OK
        answer = await monitor.report({"nodeName": "n2"})
        assert answer.status == "PERMISSION_DENIED"
        assert "events[0].nodeName is 'n2'" in answer.message
        answer = await monitor.report({"recommendedAction": 27})
        assert answer.status == "INVALID_ARGUMENT"
        assert answer.message.startswith("events[0].customRecommendedAction: ")
    (event,) = await here.events()
    assert isinstance(event.data, NodeHealthReported)
    assert (event.source, event.subject, event.number) == ("/gateways/health", "n1", 1)
    assert event.data.reporter == f"{NAMESPACE}/monitor-n1"


async def test_what_nvsentinels_monitors_send_directly_is_taken_and_sent_again_counts_once(here: Gateways) -> None:
    """Their bytes and metadata in direct mode: a token on each call, and a key that stays the same in each try."""
    token = await here.token("n1")
    async with here.serving() as ports, here.monitor(ports.tokens) as monitor:
        for place, one in enumerate(real_requests()):
            metadata = {"authorization": f"Bearer {token}", "idempotency-key": str(place)}
            for _ in range(2):
                assert await monitor.send_bytes(one.content, **metadata) == OK, one
    found = await here.reports()
    assert len(found) == sum(len(one.events()) for one in real_requests())
    assert {one.count for one in found} == {1}


async def test_who_has_no_valid_token_is_refused(here: Gateways) -> None:
    tokens = {
        "": "UNAUTHENTICATED",
        "abc": "UNAUTHENTICATED",
        await here.token("n1", audience="another"): "UNAUTHENTICATED",
        await here.token("n1", namespace=TENANT): "PERMISSION_DENIED",
        await here.token(None): "PERMISSION_DENIED",
    }
    async with here.serving() as ports:
        for token, status in tokens.items():
            async with here.monitor(ports.tokens, token=token) as monitor:
                answer = await monitor.report({})
                assert answer.status == status, answer
                assert not token or token not in answer.message
    assert await here.reports() == []


async def test_a_reporter_for_the_cluster_names_any_node(here: Gateways) -> None:
    token = await here.token("n1", account="cluster")
    async with here.serving() as ports, here.monitor(ports.tokens, token=token) as monitor:
        assert await monitor.report({"nodeName": "n2"}, {"nodeName": "n3"}) == OK
        answer = await monitor.report({})
        assert answer.status == "INVALID_ARGUMENT"
        assert answer.message.startswith("events[0].nodeName: it is empty")
    assert [one.subject for one in await here.events()] == ["n2", "n3"]


async def test_without_the_api_server_nobody_is_let_in_but_who_was_reviewed_lately(here: Gateways) -> None:
    tokens = [await here.token(node) for node in ("n1", "n2")]
    async with here.serving() as ports:
        async with here.monitor(ports.tokens, token=tokens[0]) as monitor:
            assert await monitor.report({}) == OK
            await here.server.stop()
            assert await monitor.report({"message": "b"}) == OK
        async with here.monitor(ports.tokens, token=tokens[1]) as monitor:
            answer = await monitor.report({})
    await here.server.start()
    assert answer.status == "UNAVAILABLE"
    assert "The API server cannot be asked who reports" in answer.message
    assert tokens[1] not in answer.message
    assert {event.subject for event in await here.events()} == {"n1"}


@pytest.mark.parametrize(
    ("name", "dns", "node"),
    [("system:node:n1", (), "n1"), ("rack-7.example", (), "n7"), ("anything", ("rack-7.example",), "n7")],
)
async def test_a_certificate_reports_about_the_node_that_it_names(
    here: Gateways, name: str, dns: tuple[str, ...], node: str
) -> None:
    certificate = client_of(here.authority, name, dns=dns)
    async with here.serving() as ports, here.monitor(ports.certificates, certificate=certificate) as monitor:
        assert await monitor.report({}) == OK
        assert (await monitor.report({"nodeName": "n2"})).status == "PERMISSION_DENIED"
    (event,) = await here.events()
    assert event.subject == node


async def test_certificates_of_others_are_refused(here: Gateways) -> None:
    other = new_authority("clients", datetime.now(UTC), LIFE)
    certificates = {
        "none": (None, "UNAVAILABLE"),
        "expired": (client_of(here.authority, "system:node:n1", ends=timedelta(seconds=-1)), "UNAVAILABLE"),
        "another authority's": (client_of(other, "system:node:n1"), "UNAVAILABLE"),
        "no node's": (client_of(here.authority, "somebody"), "PERMISSION_DENIED"),
        "no group's": (client_of(here.authority, "system:node:n1", "others"), "PERMISSION_DENIED"),
    }
    async with here.serving() as ports:
        for which, (certificate, status) in certificates.items():
            async with here.monitor(ports.certificates, certificate=certificate) as monitor:
                assert (await monitor.report({})).status == status, which
    assert await here.reports() == []


async def test_a_certificate_that_expires_serves_no_longer_though_its_connection_stays(here: Gateways) -> None:
    certificate, later = client_of(here.authority, "system:node:n1"), [timedelta(0)]

    def clock() -> datetime:
        return datetime.now(UTC) + later[0]

    async with (
        here.serving(clock=clock) as ports,
        here.monitor(ports.certificates, certificate=certificate) as monitor,
    ):
        assert await monitor.report({}) == OK
        later[0] = LIFE * 2
        answer = await monitor.report({})
    assert answer.status == "UNAUTHENTICATED"
    assert "has expired at" in answer.message


async def test_a_renewed_certificate_serves_new_connections_and_keeps_old_ones(here: Gateways) -> None:
    token = await here.token("n1")
    before = here.trusted
    async with here.serving() as ports, here.monitor(ports.tokens, token=token) as old:
        assert await old.report({}) == OK
        here.servers = new_authority("new servers", datetime.now(UTC), LIFE)
        here.renew("second")
        here.trusted = pem(here.servers)[0]
        async with here.monitor(ports.tokens, token=token) as new:
            assert await new.report({"message": "new"}) == OK
        assert await old.report({"message": "old"}) == OK
        async with here.monitor(ports.tokens, token=token, trusted=before) as late:
            assert (await late.report({})).status == "UNAVAILABLE"
        (here.folder / "tls.crt").write_text("nothing")
        async with here.monitor(ports.tokens, token=token) as monitor:
            assert await monitor.report({"message": "still"}) == OK


async def test_repeats_are_counted_and_what_is_sent_again_is_one_event(here: Gateways) -> None:
    token = await here.token("n1")
    async with here.serving() as ports, here.monitor(ports.tokens, token=token) as monitor:
        assert await monitor.report(AT) == OK
        assert await monitor.report(AT) == OK
        assert await monitor.report(*({"generatedTimestamp": {"seconds": 1_790_000_001 + n}} for n in range(3))) == OK
    assert [one.count for one in await here.reports()] == [1, 3]


async def test_another_replica_recognizes_what_is_sent_again(here: Gateways) -> None:
    token = await here.token("n1")
    async with here.serving() as one:
        async with here.monitor(one.tokens, token=token) as monitor:
            assert await monitor.report(AT) == OK
        async with here.serving() as other, here.monitor(other.tokens, token=token) as monitor:
            assert await monitor.report(AT) == OK
            assert await monitor.report({"message": "b", **AT}) == OK
        async with here.monitor(one.tokens, token=token) as monitor:

            async def is_recognized() -> bool:
                before = len(await here.reports())
                assert await monitor.report({"message": "b", **AT}) == OK
                return len(await here.reports()) == before

            await eventually(is_recognized)
    ids = {event.id for event in await here.events()}
    assert len(ids) == 2, "a repeat that was not recognized is the same event"


async def test_bounds_refuse_what_is_too_much(here: Gateways) -> None:
    token = await here.token("n1")
    bounds = GatewayBounds(reports_burst_max=3, reports_per_s_max=0.001, request_bytes_max=100_000)
    async with here.serving(bounds) as ports, here.monitor(ports.tokens, token=token) as monitor:
        assert (await monitor.report(*({"message": str(n)} for n in range(4)))).status == "RESOURCE_EXHAUSTED"
        assert await monitor.report(*({"message": str(n)} for n in range(3))) == OK
        assert (await monitor.report({})).status == "RESOURCE_EXHAUSTED"
        assert (await monitor.report({"message": "x" * 200_000})).status == "RESOURCE_EXHAUSTED"


async def test_who_sends_nothing_holds_no_call_and_who_may_not_report_is_refused_before_its_request(
    here: Gateways,
) -> None:
    bounds = GatewayBounds(requests_at_once_max=2, request_timeout_s=0.05)
    async with here.serving(bounds) as ports:
        for token, status in ((await here.token("n1"), "UNAVAILABLE"), ("abc", "UNAUTHENTICATED")):
            async with here.monitor(ports.tokens, token=token) as monitor:
                answers = await asyncio.gather(monitor.begin(), monitor.begin())
            assert [one.status for one in answers] == [status] * 2, answers
        async with here.monitor(ports.tokens, token=await here.token("n1")) as monitor:
            assert await monitor.report({}) == OK


async def test_a_gateway_killed_before_the_answer_leaves_one_report(
    here: Gateways, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = await here.token("n1")
    with monkeypatch.context() as patched:

        async def cut(*arguments: Any) -> NoReturn:
            await publish_own(*arguments)
            await asyncio.Event().wait()
            raise AssertionError

        patched.setattr(publisher, "publish_own", cut)
        bounds = GatewayBounds(answer_timeout_s=0.2, drain_timeout_s=0.01)
        async with here.serving(bounds) as ports, here.monitor(ports.tokens, token=token) as monitor:
            answer = await monitor.report(AT)
    assert answer.status == "UNAVAILABLE"
    assert len(await here.events()) == 1
    async with here.serving() as ports, here.monitor(ports.tokens, token=token) as monitor:
        assert await monitor.report(AT) == OK
    assert len(await here.events()) == 1, "it was recognized"
