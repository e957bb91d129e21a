"""The report on pods that request units of pools, over the rows of a few facts."""

from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from gpuledger.cli.commands.report import selection
from gpuledger.events.pod import PodGone, PodObserved
from support.events import hour
from support.pools import PoolsLog

A, B, C = "gpu.deckhouse.io/a", "gpu.deckhouse.io/b", "cluster.gpu.deckhouse.io/c"


def rows_of(database_url: str, pools: PoolsLog, *narrowed: str | None) -> list[dict[str, Any]]:
    """The report, of one pool and one namespace where they are given, once what was folded is written."""
    pool, namespace = narrowed or (None, None)
    query = selection("pool-pods", pool, None, namespace).as_string()
    with psycopg.connect(database_url, row_factory=dict_row) as connection:
        with connection.cursor().copy("COPY gpuledger_live.pool_pod FROM STDIN") as copy:
            for row in pools.state.pod.rows.values():
                copy.write_row(row)
        return connection.execute(query.encode()).fetchall()


def test_pods_with_their_requests(migrated_url: str) -> None:
    pools = PoolsLog()
    pools.record("team-b/train", PodObserved(uid="u", node="w2", requests={A: 1, C: 2}), at=3)
    pools.record("team-a/waits", PodObserved(uid="u", requests={A: 4, B: 0, "cpu": 1, "example.com/a": 1}), at=2)
    pools.record("team-a/train", PodObserved(uid="u", node="w1", requests={A: 2}), at=1)
    pools.record("team-a/train", PodObserved(uid="u", node="w1", requests={A: 3}), at=4)
    pools.record("team-a/ended", PodObserved(uid="u", node="w1", requests={A: 1}), at=1)
    pools.record("team-a/ended", PodGone(uid="u"), at=2)
    rows = rows_of(migrated_url, pools)
    assert [tuple(row.values()) for row in rows] == [
        ("c", C, "team-b", "train", 2, "w2", hour(3)),
        ("team-a/a", A, "team-a", "train", 3, "w1", hour(1)),
        ("team-a/a", A, "team-a", "waits", 4, None, None),
        ("team-b/a", A, "team-b", "train", 1, "w2", hour(3)),
    ]
    assert list(rows[0]) == ["pool", "resource", "namespace", "pod", "units", "node", "since"]


@pytest.mark.parametrize(
    ("pool", "namespace", "expected"),
    [
        ("team-a/a", None, ["team-a/a of team-a/p"]),
        ("a", None, ["a of team-b/p", "team-a/a of team-a/p", "team-b/a of team-b/p"]),
        ("a", "team-b", ["a of team-b/p", "team-b/a of team-b/p"]),
        ("team-a/a", "team-b", []),
        ("team-a", None, []),
        ("team-b/b", None, ["team-b/b of team-b/p"]),
        (None, "team-a", ["team-a/a of team-a/p"]),
    ],
)
def test_pods_that_request_one_pool_or_are_in_one_namespace(
    migrated_url: str, pool: str | None, namespace: str | None, expected: list[str]
) -> None:
    pools = PoolsLog()
    pools.record("team-a/p", PodObserved(uid="u", requests={A: 1}))
    pools.record("team-b/p", PodObserved(uid="u", requests={A: 1, B: 1, "cluster.gpu.deckhouse.io/a": 1}))
    rows = rows_of(migrated_url, pools, pool, namespace)
    assert [f"{row['pool']} of {row['namespace']}/{row['pod']}" for row in rows] == expected


def test_as_many_units_as_can_be_recorded(migrated_url: str) -> None:
    pools, most = PoolsLog(), 2**63 - 1
    pools.record("team-a/p", PodObserved(uid="u", requests={A: most}))
    assert [row["units"] for row in rows_of(migrated_url, pools)] == [most]
