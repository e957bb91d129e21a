"""JSON in rows is the same text wherever it means the same: rows that are compared as texts compare by meaning."""

from typing import Any

import orjson
import pytest

from gpuledger.projection.definition import Projection
from gpuledger.projection.replay import fold_until
from gpuledger.tools.queries.backend import all_projections
from support.dra_facts import allocated, availability_of, fact_at
from support.fold_snapshots import CountingLedger, recorded_messages


async def documents(projection: Projection) -> list[tuple[str, str]]:
    """Each JSON object or list in the rows of a recorded log, with the table and column where it is."""
    found = []
    fold = await fold_until(projection, CountingLedger(recorded_messages()))
    for name, table in fold.state.tables().items():
        for row in table.rows.values():
            for column, value in zip(table.spec.columns, row, strict=True):
                if isinstance(value, str) and value[:1] in "{[" and document_of(value) is not None:
                    found.append((f"{name}.{column}", value))
    return found


def document_of(text: str) -> Any:
    """What a text means as JSON; None: it is none."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


@pytest.mark.parametrize("projection", all_projections(), ids=lambda projection: projection.name)
async def test_it_is_sorted_by_key_and_has_no_spaces(projection: Projection) -> None:
    other = [
        (place, text)
        for place, text in await documents(projection)
        if orjson.dumps(document_of(text), option=orjson.OPT_SORT_KEYS).decode() != text
    ]
    assert other == []


async def test_the_recorded_log_has_such_columns() -> None:
    places = {place for projection in all_projections() for place, _ in await documents(projection)}
    assert {"resource_slice.payload", "resource_claim.payload", "node_labels.labels", "gpu_pool.payload"} <= places
    assert len(places) > 8


def test_what_a_share_consumes_is_sorted_however_it_was_reported() -> None:
    amounts = [{"memory": "10", "cores": "2"}, {"cores": "2", "memory": "10"}]
    facts = [
        fact_at(number, f"ns/{number}", allocated(("n1", "m", "x"), consumed=one)) for number, one in enumerate(amounts)
    ]
    texts = [row.consumed for row in availability_of(facts).allocation.rows.values()]
    assert texts == ['{"cores":"2","memory":"10"}'] * 2
