"""The webhooks' certificates before a real API: renewed without a restart, shared by replicas, put right."""

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

import pytest
from cryptography import x509
from structlog.testing import capture_logs

from gpuledger.api.kinds import CA_SECRET, CONTROLLER_TLS_SECRET, NAMESPACE, NAMESPACES, SECRETS
from gpuledger.edge.admission.caller_token import CallerTokens
from gpuledger.edge.admission.metrics import EXPIRES
from gpuledger.edge.admission.service import AdmissionService, kept_webhooks
from gpuledger.edge.admission.settings import SERVICE, AdmissionSettings
from gpuledger.edge.admission.webhook_configuration import NAME
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.kube.errors import ForeignClusterError, NotFoundError
from gpuledger.edge.kube.ownership import claim, owner, take_over
from gpuledger.edge.webhooks.certificates.authority import AUTHORITY_LIFE
from gpuledger.edge.webhooks.certificates.rotation import BEGIN_QUIETLY_S, CertificateRotation, ServedCertificate
from gpuledger.edge.webhooks.configuration import MUTATING, VALIDATING
from gpuledger.edge.webhooks.settings import WebhookAddress
from gpuledger.ledger.memory import MemoryLedger
from gpuledger.runtime.backoff import Backoff, system_jitter
from gpuledger.runtime.clock import Clock, system_clock
from gpuledger.runtime.tasks import end
from support.admission_serving import CHECK_S, Now, Webhooks, webhooks
from support.waiting import eventually


@pytest.fixture
async def hooks(client: KubeClient) -> AsyncIterator[Webhooks]:
    async with webhooks(client) as found:
        yield found


async def secret_of(client: KubeClient, name: str) -> dict[str, bytes]:
    found = await client.get(SECRETS, name, NAMESPACE)
    return {key: base64.b64decode(value) for key, value in found["data"].items()}


async def bundles_of(client: KubeClient) -> set[bytes]:
    found = [await client.get(resource, NAME) for resource in (MUTATING, VALIDATING)]
    hooks = [hook for one in found for hook in one["webhooks"]]
    assert len(hooks) == 11
    return {base64.b64decode(hook["clientConfig"].get("caBundle", "")) for hook in hooks}


async def one_bundle(client: KubeClient) -> bytes:
    """Return the bundle of all webhooks, once they have one; each configuration is written by itself."""
    found: set[bytes] = set()

    async def is_one() -> bool:
        found.clear()
        found.update(await bundles_of(client))
        return len(found) == 1 and b"" not in found

    await eventually(is_one)
    return found.pop()


async def shown_by(hooks: Webhooks, bundle: bytes) -> bytes:
    """The certificate that the webhooks show to a client that trusts this bundle."""
    url = hooks.admission.health().url
    assert url is not None
    host, _, port = url.removeprefix("https://").rpartition(":")
    context = ssl.create_default_context(cadata=bundle.decode())
    _, writer = await asyncio.open_connection(host, int(port), ssl=context)
    try:
        der: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return ssl.DER_cert_to_PEM_cert(der).encode()
    finally:
        writer.close()


@pytest.mark.parametrize(("age", "authorities"), [(timedelta(days=61), 1), (timedelta(days=3000), 2)])
async def test_certificates_are_renewed_without_a_restart(client: KubeClient, age: timedelta, authorities: int) -> None:
    clock = Now(system_clock() - age)
    async with webhooks(client, clock=clock) as hooks:
        before, authority = await secret_of(client, CONTROLLER_TLS_SECRET), await secret_of(client, CA_SECRET)
        assert await one_bundle(client) == authority["ca.crt"]
        clock.time = system_clock()

        async def is_renewed() -> bool:
            return (await secret_of(client, CONTROLLER_TLS_SECRET))["tls.crt"] != before["tls.crt"]

        await eventually(is_renewed)

        async def is_shown() -> bool:
            bundle = await one_bundle(client)
            try:
                shown = await shown_by(hooks, bundle)
            except ssl.SSLCertVerificationError:
                return False  # the bundle was extended, and the certificate shown, after it was read here
            return shown == (await secret_of(client, CONTROLLER_TLS_SECRET))["tls.crt"]

        await eventually(is_shown)
        bundle = await one_bundle(client)
        assert len(x509.load_pem_x509_certificates(bundle)) == authorities
        assert authority["tls.crt"] in bundle


class Replica:
    """What one replica shows, and how it keeps it; all are found behind the same Service."""

    def __init__(self, client: KubeClient, clock: Clock) -> None:
        self.certificates, settings = ServedCertificate(EXPIRES), AdmissionSettings()
        hooks = kept_webhooks(settings, WebhookAddress(SERVICE), CallerTokens())
        keeper = CertificateRotation(client, "ledger-1", self.certificates, hooks, settings, clock, system_jitter)
        self.keep = keeper.rotate


async def versions_of(client: KubeClient) -> list[str]:
    """Changes whenever somebody writes a secret or a configuration."""
    found = [await client.get(SECRETS, name, NAMESPACE) for name in (CA_SECRET, CONTROLLER_TLS_SECRET)]
    found += [await client.get(resource, NAME) for resource in (MUTATING, VALIDATING)]
    return [one["metadata"]["resourceVersion"] for one in found]


@pytest.mark.parametrize("age", [timedelta(days=61), timedelta(days=3000), AUTHORITY_LIFE])
async def test_replicas_that_renew_at_once_agree_and_then_write_no_more(client: KubeClient, age: timedelta) -> None:
    await client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    clock = Now(system_clock() - age)
    await claim(client, owner("ledger-1", clock()), "c")
    replicas = [Replica(client, clock) for _ in range(3)]
    await asyncio.gather(*(one.keep() for one in replicas))
    before = await secret_of(client, CA_SECRET)
    clock.time = system_clock()
    for _ in range(2):
        await asyncio.gather(*(one.keep() for one in replicas))
    settled = await versions_of(client)
    await asyncio.gather(*(one.keep() for one in replicas))
    assert await versions_of(client) == settled
    authority, serving = await secret_of(client, CA_SECRET), await secret_of(client, CONTROLLER_TLS_SECRET)
    assert await one_bundle(client) == authority["ca.crt"]
    assert {one.certificates.shown and one.certificates.shown.certificate for one in replicas} == {serving["tls.crt"]}
    assert (before["tls.crt"] in authority["ca.crt"]) is (age < AUTHORITY_LIFE)


async def test_what_expired_while_nobody_ran_is_made_anew_at_the_start(client: KubeClient) -> None:
    async with webhooks(client, clock=Now(system_clock() - AUTHORITY_LIFE)):
        before = await one_bundle(client)
    async with webhooks(client) as hooks:
        bundle = await one_bundle(client)
        assert bundle != before
        assert await shown_by(hooks, bundle) == (await secret_of(client, CONTROLLER_TLS_SECRET))["tls.crt"]


async def test_two_replicas_agree(client: KubeClient) -> None:
    async with webhooks(client, MemoryLedger()) as one, webhooks(client, MemoryLedger()) as other:
        bundle = await one_bundle(client)
        kept = (await secret_of(client, CONTROLLER_TLS_SECRET))["tls.crt"]
        assert {await shown_by(hooks, bundle) for hooks in (one, other)} == {kept}


async def test_webhooks_wait_until_the_status_writer_has_claimed_the_cluster(client: KubeClient) -> None:
    await client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    replica, ours = Replica(client, system_clock), owner("ledger-1", system_clock())
    with pytest.raises(ForeignClusterError, match="belongs to no ledger yet"):
        await replica.keep()
    assert (await client.list(VALIDATING)).items == []
    assert await claim(client, ours, "c") == ours, "nobody had claimed it"
    await replica.keep()
    assert len((await client.list(VALIDATING)).items) == 1


async def test_another_ledger_configures_nothing_until_the_cluster_is_its_own(client: KubeClient) -> None:
    async with webhooks(client, MemoryLedger(ledger_id="first")):
        before = await versions_of(client)
        settings = AdmissionSettings(listen="127.0.0.1:0", address=None, certificates_check_s=CHECK_S)
        other = AdmissionService(MemoryLedger(ledger_id="second"), client, settings, jitter=lambda: 0.0)
        running = asyncio.create_task(other.run())
        try:

            async def is_refused() -> bool:
                return "belongs to the ledger first" in (other.health().reason or "")

            await eventually(is_refused)
            assert not other.is_configured
            assert await versions_of(client) == before
        finally:
            await end([running])
    await take_over(client, owner("second", system_clock()))
    async with webhooks(client, MemoryLedger(ledger_id="second")):
        assert await versions_of(client) != before


async def test_replicas_that_start_at_once_agree(client: KubeClient) -> None:
    async def started(done: asyncio.Event) -> bytes:
        async with webhooks(client, MemoryLedger()) as hooks:
            ready.release()
            await done.wait()
            bundle = await one_bundle(client)
            return await shown_by(hooks, bundle)

    ready, done = asyncio.Semaphore(0), asyncio.Event()
    tasks = [asyncio.create_task(started(done)) for _ in range(3)]
    for _ in tasks:
        await ready.acquire()
    done.set()
    assert set(await asyncio.gather(*tasks)) == {(await secret_of(client, CONTROLLER_TLS_SECRET))["tls.crt"]}


async def test_what_somebody_changes_is_put_right(client: KubeClient, hooks: Webhooks) -> None:
    bundle = await one_bundle(client)
    patch = [{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": ""}]
    await client.json_patch(MUTATING, NAME, patch)

    async def is_right() -> bool:
        return await bundles_of(client) == {bundle}

    await eventually(is_right)
    broken = {"data": {"tls.key": base64.b64encode(b"none").decode()}}
    await client.merge_patch(SECRETS, CONTROLLER_TLS_SECRET, broken, NAMESPACE)

    async def is_whole() -> bool:
        data = await secret_of(client, CONTROLLER_TLS_SECRET)
        return data["tls.key"] != b"none" and await shown_by(hooks, bundle) == data["tls.crt"]

    await eventually(is_whole)


async def test_what_somebody_deletes_is_there_again(client: KubeClient, hooks: Webhooks) -> None:
    before = await one_bundle(client)
    await client.delete(SECRETS, CA_SECRET, NAMESPACE)
    for resource in (MUTATING, VALIDATING):
        await client.delete(resource, NAME)

    async def is_whole() -> bool:
        with suppress(NotFoundError, ssl.SSLCertVerificationError):
            bundle = await one_bundle(client)
            return bundle != before and bool(await shown_by(hooks, bundle))
        return False

    await eventually(is_whole)


BRISK = AdmissionSettings(backoff=Backoff(first_s=0.01, max_s=0.02))


@asynccontextmanager
async def rotating(client: KubeClient, clock: Clock) -> AsyncIterator[tuple[CertificateRotation, list[Any]]]:
    """A rotation that begins now, and what it logs."""
    hooks = kept_webhooks(BRISK, WebhookAddress(SERVICE), CallerTokens())
    rotation = CertificateRotation(client, "ledger-1", ServedCertificate(EXPIRES), hooks, BRISK, clock, system_jitter)
    with capture_logs() as logged:
        working = asyncio.create_task(rotation.run())
        try:
            yield rotation, logged
        finally:
            await end([working])


async def until(condition: Callable[[], object]) -> None:
    async def holds() -> object:
        return condition()

    await eventually(holds)


async def test_a_service_that_begins_with_others_waits_for_them_and_says_so_once(client: KubeClient) -> None:
    now = Now(system_clock())
    async with rotating(client, now) as (rotation, logged):
        await until(lambda: waits(logged))
        await claim(client, owner("ledger-1", now()), "c")
        await until(lambda: len(waits(logged)) == 2)
        unclaimed, without_namespace = waits(logged)
        assert "belongs to no ledger yet" in unclaimed
        assert f'namespaces "{NAMESPACE}" not found' in without_namespace
        assert {one["log_level"] for one in logged} == {"info"}
        now.time += timedelta(seconds=BEGIN_QUIETLY_S)
        await until(lambda: logged[-1]["event"] == "webhooks.rotation-failed")
        await client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        await until(lambda: rotation.rounds)
        assert rotation.problem is None


def waits(logged: list[Any]) -> list[str]:
    return [one["reason"] for one in logged if one["event"] == "webhooks.waiting"]


async def test_another_ledgers_cluster_is_a_warning_at_once(client: KubeClient) -> None:
    await claim(client, owner("ledger-2", system_clock()), "c")
    async with rotating(client, system_clock) as (_, logged):
        await until(lambda: logged)
        assert (logged[0]["event"], logged[0]["log_level"]) == ("webhooks.rotation-failed", "warning")
