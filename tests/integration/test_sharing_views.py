"""The reports about shared devices, and these at a time, over rows that the real runner has written."""

import asyncio
from datetime import datetime
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.rows import dict_row

from gpuledger.cli.get.noun import Noun
from gpuledger.cli.get.sharing_nouns import GPUS, SHARES
from gpuledger.db.engine import connect
from gpuledger.db.views import view_of
from gpuledger.domain.sharing.rows import SPECS
from gpuledger.events.envelope import Decoded
from gpuledger.events.rule import RuleEnforced
from gpuledger.events.runtime import NodeGpuCheckpointsObserved
from gpuledger.ledger.memory import MemoryLedger
from gpuledger.projection.runner import Runner
from gpuledger.readmodels.projections import SharesProjection
from gpuledger.tools.queries.rows import rows_at
from support.events import RecordedFact, event, folded, hour, log_of, numbered
from support.projections import QUICK, execute, publish, table
from support.sharing import (
    TYPES,
    gone,
    gpu,
    having,
    observed,
    of_gpus,
    released,
    reserved,
    share,
    shared,
    sharings,
    story,
)

EXAMPLES = 25
NIC = gpu(0).model_copy(update={"type": "rdma", "id": "0000:09:00.0", "resources": {"rdma": 100}})
HALF = of_gpus(share(0))
STORY = story(
    ("n1", 0, shared(gpu(0), gpu(1), gpu(2, healthy=False), NIC)),
    ("n2", 0, shared(gpu(0), model="A100")),
    ("ml/a", 1, reserved("a")),
    ("ml/a", 2, observed("a", node="n1", allocation=HALF, started=True)),
    ("ml/b", 2, reserved("b", share(0, 25))),
    ("ml/c", 2, reserved("c", share(1))),
    ("ml/c", 3, released("c")),
    ("ml/d", 3, observed("d", node="n2", allocation=of_gpus(share(0, 100)))),
    ("ml/e", 4, observed("e", requests={"gpu-core": 60, "gpu-memory-ratio": 60})),
    ("n1", 4, having(old="GPU-1")),
    ("n1", 6, having()),
    (
        "ml/f",
        5,
        observed("f", node="n1", allocation={"rdma": (share(0).model_copy(update={"resources": {"rdma": 1}}),)}),
    ),
)
BY_HAND = story(
    ("n1", 0, shared(gpu(0), gpu(1))),
    ("ml/a", 1, observed("a", node="n1", allocation=of_gpus(share(0, 75)))),
    ("ml/b", 1, reserved("b", share(1))),
    ("ml/b", 2, observed("b", node="n1", allocation=HALF)),
    ("ml/c", 2, observed("c", node="n1", allocation=of_gpus(share(7)))),
    ("ml/d", 2, observed("d", node="n1").model_copy(update={"unreadable": "it is no JSON"})),
    ("ml/g", 2, observed("g", node="n1", allocation=of_gpus(share(6)))),
    ("ml/g", 3, gone("g")),
)


IN_FORCE = event(RuleEnforced(), NodeGpuCheckpointsObserved.TYPE, source="/services/sources", event_id="in-force")
"""What agents record of a type counts behind it."""


async def fold(url: str, events: list[Decoded]) -> None:
    ledger = MemoryLedger()
    head = await publish(ledger, [IN_FORCE, *events])
    await Runner(SharesProjection(), ledger, url, settings=QUICK).catch_up(head)


def ask(url: str, report: str) -> list[dict[str, Any]]:
    with psycopg.connect(url, row_factory=dict_row) as connection:
        return connection.execute(f"SELECT * FROM {view_of(report)}".encode()).fetchall()


@pytest.fixture
async def database(url: str) -> str:
    await fold(url, STORY)
    return url


def test_who_has_which_card(database: str) -> None:
    cards = {(row["node"], row["minor"]): row for row in ask(database, "shared-gpus")}
    assert list(cards) == [("n1", 0), ("n1", 1), ("n1", 2), ("n2", 0)]
    first = cards["n1", 0]
    assert (first["core_used"], first["memory_used_gib"], first["ratio_used"]) == (75, Decimal(12), 75)
    assert (first["holders"], first["pods"], first["model"], first["id"]) == ("ml/a,ml/b", 2, "H100", "GPU-0")
    assert (cards["n1", 1]["core_used"], cards["n1", 2]["healthy"], cards["n2", 0]["core_used"]) == (0, False, 100)


def test_allocations_with_their_times(database: str) -> None:
    rows = {(row["pod"], row["type"]): row for row in ask(database, "shared-allocations")}
    assert {key: (row["valid_from"], row["valid_to"]) for key, row in rows.items()} == {
        ("ml/a", "gpu"): (hour(1), None),
        ("ml/b", "gpu"): (hour(2), None),
        ("ml/c", "gpu"): (hour(2), hour(3)),
        ("ml/d", "gpu"): (hour(3), None),
        ("ml/f", "rdma"): (hour(5), None),
    }
    assert (rows["ml/f", "rdma"]["ratio"], rows["ml/f", "rdma"]["core"], rows["ml/b", "gpu"]["core"]) == (1, None, 25)


def test_how_densely_cards_are_packed(database: str) -> None:
    rows = {(row["per"], row["model"], row["node"]): row for row in ask(database, "packing")}
    assert set(rows) == {
        ("all", None, None),
        *(("model", model, None) for model in ("A100", "H100")),
        *(("node", *one) for one in (("A100", "n2"), ("H100", "n1"))),
    }
    whole = rows["all", None, None]
    assert (whole["gpus"], whole["unhealthy"], whole["empty"], whole["partly_used"], whole["full_gpus"]) == (
        4,
        1,
        2,
        1,
        1,
    )
    assert (whole["shared"], whole["pods_per_used_gpu"], whole["most_pods"]) == (1, Decimal("1.5"), 2)
    assert (whole["allocated_gpus"], whole["allocation_rate"]) == (Decimal("1.75"), Decimal("0.4375"))


def test_what_is_free_and_of_no_use(database: str) -> None:
    rows = {(row["per"], row["node"]): row for row in ask(database, "fragmentation")}
    whole, busy = rows["all", None], rows["node", "n1"]
    assert (whole["gpus"], whole["partly_used"], whole["free_gpus"], whole["free_on_used"]) == (
        4, 1, Decimal("1.25"), Decimal("0.25"),
    )  # fmt: skip
    assert (whole["requests"], whole["largest_free"], whole["unusable_gpus"]) == (4, 100, 0)
    # Of the requests for 25, 50, 60 and 100 percent of a card, only the first fits what is left of card 0.
    assert (busy["fragmented_gpus"], busy["fragmentation"]) == (Decimal("0.19"), Decimal("0.15"))


@pytest.mark.parametrize(
    ("requests", "fits"),
    [
        ({"gpu-core": 60, "gpu-memory-ratio": 60}, False),
        ({"gpu-core": 50, "gpu-memory-ratio": 50}, True),
        ({"gpu": 60}, False),
        ({"gpu": 200}, False),
        ({"nvidia.com/gpu": 1}, False),
        ({"gpu-core": 100, "gpu-memory-ratio": 100, "gpu.shared": 2}, True),
        ({"gpu-memory": 9 * 2**30}, False),
        ({"gpu-memory": 8 * 2**30}, True),
    ],
)
async def test_what_a_waiting_pod_cannot_use(url: str, requests: dict[str, int], *, fits: bool) -> None:
    await fold(
        url,
        story(
            ("n1", 0, shared(gpu(0))),
            ("n2", 0, shared(gpu(0))),
            ("ml/whole", 1, observed("w", node="n2", allocation=of_gpus(share(0, 100)))),
            ("ml/half", 1, observed("h", node="n1", allocation=HALF)),
            ("ml/waits", 3, observed("x", requests=requests)),
        ),
    )
    (half_free,) = [row for row in ask(url, "fragmentation") if row["node"] == "n1"]
    requests_refused = 1 if fits else 2
    assert half_free["fragmented_gpus"] == round(Decimal("0.5") * requests_refused / 3, 2)
    assert (half_free["free_gpus"], half_free["unusable_gpus"]) == (Decimal("0.5"), 0)


async def test_what_nobody_can_use(url: str) -> None:
    held = of_gpus(share(0).model_copy(update={"resources": {"gpu-core": 75, "gpu-memory-ratio": 75}}))
    await fold(url, story(("n1", 0, shared(gpu(0))), ("ml/a", 1, observed(node="n1", allocation=held))))
    whole = ask(url, "fragmentation")[0]
    assert (whole["unusable_gpus"], whole["fragmentation"]) == (Decimal("0.25"), 1)


async def test_what_people_wrote_by_hand_shows(url: str) -> None:
    await fold(url, BY_HAND)
    rows = [
        (row["problem"], row["minor"], row["pods"], row["total"], row["used"]) for row in ask(url, "oversubscription")
    ]
    gib = 2**30
    assert rows == [
        ("annotation is not the reservation", None, "ml/b", None, None),
        ("annotation is unreadable", None, "ml/d", None, None),
        ("device is not shared", 7, "ml/c", 0, 50),
        ("more than the device has", 0, "ml/a,ml/b", 100, 125),
        ("more than the device has", 0, "ml/a,ml/b", 16 * gib, 20 * gib),
        ("more than the device has", 0, "ml/a,ml/b", 100, 125),
    ]


@pytest.mark.parametrize("size", [1, 3])
async def test_processes_that_start_again_read_the_past_back(url: str, size: int) -> None:
    ledger, late = MemoryLedger(), list(reversed([*STORY, *story(("ml/a", 9, gone("a")))]))
    events = [IN_FORCE, *(one._replace(id=str(number), number=number) for number, one in enumerate(late, 1))]
    for at in range(0, len(events), size):
        head = await publish(ledger, events[at : at + size])
        await Runner(SharesProjection(), ledger, url, settings=QUICK).catch_up(head)
    for name, rows in folded(SharesProjection(), log_of(events)).state.tables().items():
        expected = [tuple(row) for row in rows.rows.values()]
        assert table(url, name, ", ".join(rows.spec.columns)) == sorted(expected, key=str), name


def test_the_past_is_the_fold_of_what_had_happened(database: str) -> None:
    asyncio.run(_agree(database, STORY, [hour(number / 2) for number in range(-1, 14)]))


def test_any_past_is_the_fold_of_what_had_happened(migrated_url: str) -> None:
    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    @given(recorded=sharings.filter(bool), until=st.integers(-1, 9), data=st.data())
    def agree(recorded: list[RecordedFact], until: int, data: st.DataObject) -> None:
        events = numbered(recorded)
        tables = ", ".join(f"gpuledger_live.{spec.name}" for spec in SPECS)
        execute(migrated_url, f"TRUNCATE {tables}, gpuledger.projection, gpuledger.seen, gpuledger.enforced_rule")
        asyncio.run(fold(migrated_url, data.draw(st.permutations(events))))
        asyncio.run(_agree(migrated_url, events, [hour(until)]))

    agree()


async def _agree(url: str, events: list[Decoded], times: list[datetime]) -> None:
    async with connect(url, application_name="test") as connection:
        for time in times:
            happened = sorted((event for event in events if event.time <= time), key=lambda event: event.time)
            tables = folded(SharesProjection(), log_of(happened), types=TYPES).state.tables()
            for noun in (GPUS, SHARES):
                columns = noun.source.columns
                expected = [
                    {name: getattr(row, name) for name in columns}
                    for row in tables[noun.spec.name].rows.values()
                    if _holds(row, noun)
                ]
                found = await rows_at(connection, noun.source, time)
                assert sorted(map(repr, found)) == sorted(map(repr, expected)), (time, noun.view.kind)


def _holds(row: Any, noun: Noun) -> bool:
    return noun.ends is None or getattr(row, noun.ends) is None
