"""The columns of incidents, as `get incidents` and `incident list` show them."""

from gpuledger.cli.render import Column, View


def _entity(entity: object) -> str:
    return str(entity) or "(node)"


INCIDENT_VIEW = View(
    "incident",
    (
        Column("incident"),
        Column("node"),
        Column("check", "check_name"),
        Column("entity", format=_entity),
        Column("fatal"),
        Column("codes"),
        Column("opened", "opened_at"),
        Column("ended", "ended_at"),
        Column("reports", right=True),
        Column("cause", "last_cause"),
        Column("monitor", wide=True),
        Column("device", wide=True),
        Column("component", wide=True),
        Column("last", "last_at", wide=True),
        Column("ended by", wide=True),
        Column("action", wide=True),
        Column("first cause", wide=True),
    ),
    "incident",
)
