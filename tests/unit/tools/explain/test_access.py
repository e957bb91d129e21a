"""A status without the claims that may not be named."""

from typing import Any

from gpuledger.tools.explain.access import elided, names_and_count, namespaces_in, with_claims
from support.dra_explanations import available, devices, holding, slice_of

STATE = available(
    slice_of("w1", *devices("gpu-0", "gpu-1")),
    holding("a/one", "w1/gpu-0"),
    holding("b/two", "w1/gpu-1"),
    holding("b/ghost", "w1/gone"),
    holding("c/ghost", "w1/gone-too"),
)


def status() -> dict[str, Any]:
    found = STATE.status("w1-slice")
    assert found is not None
    return found


def test_the_namespaces_of_all_claims_are_found() -> None:
    assert namespaces_in(status()) == {"a", "b", "c"}
    assert namespaces_in({}) == set()


def test_only_claims_of_readable_namespaces_keep_their_names() -> None:
    found = elided(status(), {"a", "c"}.__contains__)
    first, second = (device["allocations"][0] for device in found["devices"])
    assert (first["claimNamespace"], first["claimName"], first["request"]) == ("a", "one", "r")
    assert second == {"claimNamespace": "", "claimName": "", "claimUID": ""}
    errors = found["poolStatus"]["validationErrors"]
    assert [one.partition(" references ")[0] for one in errors] == ["A ResourceClaim", "ResourceClaim c/ghost"]
    assert {"two", "ghost"}.isdisjoint(str(found["devices"]))
    assert found["summary"] == status()["summary"]


def test_a_status_that_names_nobody_stays_as_it_is() -> None:
    redacted = STATE.status("w1-slice", redacted=True)
    assert redacted is not None
    assert namespaces_in(redacted) == set()
    assert elided(redacted, lambda _: True) == redacted


def test_a_status_without_names_gets_those_that_the_ledger_has() -> None:
    redacted = STATE.status("w1-slice", redacted=True)
    assert redacted is not None
    found = with_claims(redacted, status())
    assert found["devices"] == status()["devices"]
    assert found["summary"] == redacted["summary"]
    assert with_claims({"summary": {}}, status()) == {"summary": {}}


def test_a_status_of_another_moment_stays_as_it_is() -> None:
    """The ledger may know of a claim that Kubernetes' status does not have yet, and the other way round."""
    redacted = STATE.status("w1-slice", redacted=True)
    before = available(slice_of("w1", *devices("gpu-0", "gpu-1"))).status("w1-slice")
    assert redacted is not None
    assert before is not None
    assert with_claims(redacted, before) == redacted
    assert with_claims(before, status()) == before
    assert with_claims(status(), before) == status()


def test_claims_are_counted_where_they_are_not_named() -> None:
    assert names_and_count(["a/one"], 0) == "a/one"
    assert names_and_count([], 1) == "(1 claim)"
    assert names_and_count(["a/one", "a/two"], 3) == "a/one, a/two and (3 claims)"
    assert names_and_count([], 0) == ""
