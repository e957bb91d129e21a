"""Decisions stand in the outbox as they were made, whatever their texts hold."""

from datetime import UTC, datetime

import pytest

from gpuledger.db.engine import connect
from gpuledger.deciders.maintenance.projection import MaintenanceProjection
from gpuledger.events.envelope import Decoded, Event, encode
from gpuledger.events.maintenance import NodeMaintenanceExpired
from gpuledger.events.position import ORIGIN
from gpuledger.projection.store import Decider, ProjectionStore

AT = datetime(2026, 1, 1, tzinfo=UTC)
TEXTS = ('say "no"', "C:\\temp\\", "Zürich 漢字 😀", "{a,b},NULL", "line\nbreak", "o'neill %s")


def expiry(number: int, owner: str) -> Decoded:
    data = NodeMaintenanceExpired(owner=owner, expires=AT)
    return Event(f"decision/{owner}", "/services/maintenance", data.TYPE, f"n{number}", AT, data, "e1", number)


@pytest.fixture
def decided() -> list[Decoded]:
    return [expiry(number, text) for number, text in enumerate(TEXTS, 1)]


async def test_decisions_are_read_back_as_they_were_made(migrated_url: str, decided: list[Decoded]) -> None:
    async with connect(migrated_url, application_name="test") as connection:
        store = ProjectionStore(connection, MaintenanceProjection())
        await store.create_decider(Decider("e1", 1, ORIGIN))
        await store.put_outbox([], "ready")
        assert await store.outbox() == []
        await store.put_outbox(decided, "ready")
        await store.put_outbox(decided[:2], "held")
        assert await store.outbox() == decided
        rows = await connection.execute("SELECT data, status, message_id FROM gpuledger.outbox ORDER BY number")
        kept = await rows.fetchall()
    assert [bytes(data) for data, _, _ in kept] == list(map(encode, decided))
    assert {status for _, status, _ in kept} == {"ready"}
    assert len({message_id for _, _, message_id in kept}) == len(decided)
