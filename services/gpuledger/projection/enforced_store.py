"""The rules that an edition of a projection enforces, in PostgreSQL: they change with its rows, in one transaction."""

from typing import Any

from psycopg import AsyncConnection

from gpuledger.projection.enforced import EnforcedRule, EnforcedRules


async def read_rules(connection: AsyncConnection[Any], projection: str, edition: str) -> EnforcedRules:
    """The rules that an edition enforces."""
    cursor = await connection.execute(
        "SELECT rule, version, sequence FROM gpuledger.enforced_rule WHERE projection = %s AND edition = %s",
        (projection, edition),
    )
    return EnforcedRules(EnforcedRule(*row) for row in await cursor.fetchall())


async def write_rules(connection: AsyncConnection[Any], projection: str, edition: str, rules: EnforcedRules) -> None:
    """Write the rules that were added since the last call."""
    for one in rules.take_changes():
        await connection.execute(
            "INSERT INTO gpuledger.enforced_rule (projection, edition, rule, version, sequence) "
            "VALUES (%s, %s, %s, %s, %s) ON CONFLICT (projection, edition, rule) "
            "DO UPDATE SET version = excluded.version, sequence = excluded.sequence",
            (projection, edition, *one),
        )
