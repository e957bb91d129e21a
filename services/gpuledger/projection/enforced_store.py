"""The rules that an edition of a projection enforces, in PostgreSQL: they change with its rows, in one transaction."""

from typing import Any

from psycopg import AsyncConnection

from gpuledger.events.errors import UnknownEventTypeError
from gpuledger.events.position import Position
from gpuledger.projection.enforced import EnforcedRule, EnforcedRules, check_version
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


async def write_rules(connection: AsyncConnection[Any], projection: str, edition: str, rules: EnforcedRules) -> None:
    """Write the rules that were added since the last call."""
    for one in rules.take_changes():
        await connection.execute(
            "INSERT INTO gpuledger.enforced_rule (projection, edition, rule, version, sequence) "
            "VALUES (%s, %s, %s, %s, %s) ON CONFLICT (projection, edition, rule) "
            "DO UPDATE SET version = excluded.version, sequence = excluded.sequence",
            (projection, edition, *one),
        )
