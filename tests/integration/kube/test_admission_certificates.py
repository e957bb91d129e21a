"""The webhooks' certificates before a real API: renewed without a restart, shared by replicas, put right."""

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from cryptography import x509

from gpuledger.admission.configuration import MUTATING, NAME, VALIDATING
from gpuledger.clock import system_clock
from gpuledger.kube.client import KubeClient
from gpuledger.kube.names import CA_SECRET, CONTROLLER_TLS_SECRET, NAMESPACE, SECRETS
from gpuledger.ledger.memory import MemoryLedger
from support.admission_serving import Now, Webhooks, webhooks
from support.kube_http import eventually


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
    assert len(hooks) == 7
    return {base64.b64decode(hook["clientConfig"]["caBundle"]) for hook in hooks}


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
        assert await bundles_of(client) == {authority["ca.crt"]}
        clock.time = system_clock()

        async def is_renewed() -> bool:
            return (await secret_of(client, CONTROLLER_TLS_SECRET))["tls.crt"] != before["tls.crt"]

        await eventually(is_renewed)

        async def is_shown() -> bool:
            (bundle,) = await bundles_of(client)
            return await shown_by(hooks, bundle) == (await secret_of(client, CONTROLLER_TLS_SECRET))["tls.crt"]

        await eventually(is_shown)
        (bundle,) = await bundles_of(client)
        assert len(x509.load_pem_x509_certificates(bundle)) == authorities
        assert authority["tls.crt"] in bundle


async def test_two_replicas_agree(client: KubeClient) -> None:
    async with webhooks(client, MemoryLedger()) as one, webhooks(client, MemoryLedger()) as other:
        (bundle,) = await bundles_of(client)
        kept = (await secret_of(client, CONTROLLER_TLS_SECRET))["tls.crt"]
        assert {await shown_by(hooks, bundle) for hooks in (one, other)} == {kept}


async def test_replicas_that_start_at_once_agree(client: KubeClient) -> None:
    async def started(done: asyncio.Event) -> bytes:
        async with webhooks(client, MemoryLedger()) as hooks:
            ready.release()
            await done.wait()
            (bundle,) = await bundles_of(client)
            return await shown_by(hooks, bundle)

    ready, done = asyncio.Semaphore(0), asyncio.Event()
    tasks = [asyncio.create_task(started(done)) for _ in range(3)]
    for _ in tasks:
        await ready.acquire()
    done.set()
    assert set(await asyncio.gather(*tasks)) == {(await secret_of(client, CONTROLLER_TLS_SECRET))["tls.crt"]}


async def test_what_somebody_changes_is_put_right(client: KubeClient, hooks: Webhooks) -> None:
    (bundle,) = await bundles_of(client)
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
