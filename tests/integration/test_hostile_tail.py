"""The last message of an idle log, at which every checkpoint stands, may be anybody's."""

import pytest

from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.runner import Runner
from gpuledger.readmodels.projections import DevicesProjection
from support.ledgers import publish_raw, read_count
from support.projections import QUICK, assert_true, checkpoint, publish, reaches, running, table
from support.runners import failures
from support.waiting import eventually


@pytest.mark.parametrize(
    ("token", "body"),
    [
        (b"a\xff\xfeb", b"{"),
        (b"a\xe2\x82b\\xff", b"{"),
        ("a\ufffdb".encode(), b"{"),
        (b"a", rb'{"id":"\u0000"}'),
        (b"a", b'{"id":"%b"}' % (b"x" * 100_000)),
    ],
    ids=("no UTF-8", "a part of a character", "U+FFFD", "NUL in the id", "a long id"),
)
async def test_it_stops_nobody_and_is_found_again(
    ledger: JetStreamLedger, clean_nats_url: str, url: str, token: bytes, body: bytes
) -> None:
    head = await publish(ledger, failures(range(1, 3)))
    publish_raw(clean_nats_url, b"ledger.node.n1.device.%b.failed" % token, body)

    async def is_recorded() -> bool:
        return await ledger.head() == head + 1

    await eventually(is_recorded)
    devices = Runner(DevicesProjection(), ledger, url, settings=QUICK)
    async with running(devices):
        await reaches(url, "devices", head + 1)
        async with ledger.read() as reader:
            await read_count(reader, head + 1)
            await ledger._connection.client.force_reconnect()
            await publish(ledger, failures(range(3, 4)))
            await read_count(reader, 1)
        await reaches(url, "devices", head + 2)
    found = await checkpoint(url, "devices")
    assert found is not None
    await ledger.confirm(found.anchor)
    await ledger.confirm(await ledger.anchor_at(head + 1))
    assert len(table(url, "failure")) == 3
    await assert_true(ledger, url, [DevicesProjection()])
