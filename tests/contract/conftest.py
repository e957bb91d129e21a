"""Every kind of ledger, for what all of them do."""

from collections.abc import AsyncIterator

import pytest

from gpuledger.ledger.api import Ledger
from support.ledgers import SEVERAL_PARTITIONS, jetstream_ledger, memory_ledger


@pytest.fixture(params=["memory", "jetstream", "partitions"])
async def ledger(request: pytest.FixtureRequest) -> AsyncIterator[Ledger]:
    if request.param == "memory":
        async with memory_ledger() as in_memory:
            yield in_memory
    else:
        partitions = SEVERAL_PARTITIONS if request.param == "partitions" else 1
        url = request.getfixturevalue("clean_nats_url")
        async with jetstream_ledger(url, partitions=partitions) as in_jetstream:
            yield in_jetstream
