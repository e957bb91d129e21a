"""On whose behalf a request runs, by the headers of impersonation."""

import pytest

from gpuledger.local.kubeapi.access import Caller, caller, extra_of
from gpuledger.local.kubeapi.errors import ApiError


def test_extra_fields_are_named_in_headers_whatever_their_case() -> None:
    headers = [
        ("Impersonate-Extra-Authentication.kubernetes.io%2Fnode-name", "w1"),
        ("impersonate-extra-scopes", "a"),
        ("Impersonate-Extra-Scopes", "b"),
        ("Impersonate-User", "eva"),
    ]
    found = extra_of(headers)
    assert found == {"authentication.kubernetes.io/node-name": ["w1"], "scopes": ["a", "b"]}
    assert caller("eva", ["devs"], found) == Caller("eva", ("devs", "system:authenticated"), True, found)


@pytest.mark.parametrize(("groups", "extra"), [(["devs"], {}), ([], {"scopes": ["a"]})])
def test_nobody_has_groups_or_extra_fields_without_a_user(groups: list[str], extra: dict[str, list[str]]) -> None:
    with pytest.raises(ApiError, match="without the user") as refused:
        caller("", groups, extra)
    assert refused.value.code == 400
