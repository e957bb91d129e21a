"""The rules that an edition of a projection enforces, in PostgreSQL: they change with its rows, in one transaction."""

from datetime import datetime
from typing import Any

from psycopg import AsyncConnection

from gpuledger.domain.histories import time_of
from gpuledger.events.errors import UnknownEventTypeError
from gpuledger.events.position import Position
from gpuledger.projection.checkpoint import LIVE
from gpuledger.projection.enforced import EnforcedRule, EnforcedRules, check_version, rule_of_history
from gpuledger.projection.errors import RuleVersionError


async def read_rules(connection: AsyncConnection[Any], projection: str, edition: str, generation: int) -> EnforcedRules:
    """The rules that an edition enforces; its rows follow this generation.

    Raises:
        RuleVersionError: a newer build folded the rows by a rule that this one does not know.
    """
    cursor = await connection.execute(
        "SELECT rule, version, sequence FROM gpuledger.enforced_rule WHERE projection = %s AND edition = %s",
        (projection, edition),
    )
    rules = [EnforcedRule(*row) for row in await cursor.fetchall()]
    for one in rules:
        try:
            check_version(one.rule, one.version)
        except UnknownEventTypeError as error:
            raise RuleVersionError(projection, Position(generation, one.sequence), str(error)) from error
    return EnforcedRules(rules)


async def kept_since(connection: AsyncConnection[Any], projection: str, history: str) -> datetime | None:
    """Since when the rows that serve keep a history; None: nobody has shortened it."""
    cursor = await connection.execute(
        "SELECT version FROM gpuledger.enforced_rule WHERE projection = %s AND edition = %s AND rule = %s",
        (projection, LIVE, rule_of_history(history)),
    )
    row = await cursor.fetchone()
    return None if row is None else time_of(row[0])


async def write_rules(connection: AsyncConnection[Any], projection: str, edition: str, rules: EnforcedRules) -> None:
    """Write the rules that were added since the last call."""
    for one in rules.take_changes():
        await connection.execute(
            "INSERT INTO gpuledger.enforced_rule (projection, edition, rule, version, sequence) "
            "VALUES (%s, %s, %s, %s, %s) ON CONFLICT (projection, edition, rule) "
            "DO UPDATE SET version = excluded.version, sequence = excluded.sequence",
            (projection, edition, *one),
        )
