"""Whether a pool's spec makes sense: the rules that the decider and admission share."""

from typing import Any

import pytest

from gpuledger.domain.inventory.state import json_text
from gpuledger.domain.pools.validation import problem_of, problems, unsupported
from support.pools import pool

CAP = 8


def selecting(operator: str, *values: str) -> dict[str, Any]:
    return {"requirements": [{"key": "k", "operator": operator, "values": values}]}


@pytest.mark.parametrize(
    ("pool_id", "fields", "reasons"),
    [
        ("ns/p", {}, []),
        ("ns/p", {"slices_per_unit": 8}, []),
        ("ns/p", {"slices_per_unit": 9}, ["SlicesAboveCap"]),
        ("ns/p", {"unit": "MIG"}, ["MIGProfileMissing"]),
        ("ns/p", {"unit": "MIG", "mig_profile": "1g.10gb"}, []),
        ("ns/p", {"unit": "MIG", "mig_profile": "1g.10gb+me"}, []),
        ("ns/p", {"unit": "MIG", "mig_profile": "1g.12gb+me.all"}, []),
        ("ns/p", {"unit": "MIG", "mig_profile": "1c.2g.20gb"}, []),
        ("ns/p", {"unit": "MIG", "mig_profile": "big"}, ["MIGProfileInvalid"]),
        ("ns/p", {"mig_profile": "1g.10gb"}, ["MIGProfileUnused"]),
        ("ns/p", {"node_selector": selecting("In")}, ["SelectorInvalid"]),
        ("ns/p", {"node_selector": selecting("Exists", "v")}, ["SelectorInvalid"]),
        ("ns/p", {"auto_approve": selecting("Near", "v")}, ["SelectorInvalid"]),
        ("ns/p", {"auto_approve": selecting("NotIn", "v"), "node_selector": selecting("DoesNotExist")}, []),
        ("n" * 63 + "/" + "p" * 63, {}, []),
        ("ns/" + "p" * 64, {}, ["NameInvalid"]),
    ],
)
def test_each_problem_has_a_reason_and_names_its_field(
    pool_id: str, fields: dict[str, Any], reasons: list[str]
) -> None:
    found = list(problems(pool_id, pool(**fields), CAP))
    assert [problem.reason for problem in found] == reasons
    assert all(problem.message.startswith(("spec.", "metadata.")) for problem in found)
    first = problem_of(pool_id, json_text(pool(**fields).model_dump(mode="json")), CAP)
    assert first == (found[0]._replace(message=f"{found[0].message}.") if found else None)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [({}, None), ({"provider": "AMD"}, "ProviderNotSupported"), ({"backend": "DRA"}, "BackendNotSupported")],
)
def test_providers_and_backends_that_are_not_served(fields: dict[str, Any], reason: str | None) -> None:
    problem = unsupported(pool(**fields))
    assert (None if problem is None else problem.reason) == reason
