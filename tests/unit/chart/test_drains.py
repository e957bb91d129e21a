"""Which namespaces the chart has drains leave alone."""

import pytest

from gpuledger.runtime.settings import UNTOUCHED_NAMESPACES, read_settings
from support.chart import NAMESPACE, WITH_SECRET, needs_helm, render, template

pytestmark = needs_helm


@pytest.mark.parametrize("more", [[], ["monitoring", "infra-*"]])
def test_the_namespace_of_the_release_and_those_of_the_values_are_untouched(more: list[str]) -> None:
    made = render(WITH_SECRET | {"drain": {"untouchedNamespaces": more}})
    (container,) = made.one("Deployment")["spec"]["template"]["spec"]["containers"]
    env = {one["name"]: one.get("value") for one in container["env"]}
    found = read_settings({UNTOUCHED_NAMESPACES: env[UNTOUCHED_NAMESPACES]}).untouched_namespaces
    assert found == (NAMESPACE, *more)


def test_what_is_no_pattern_of_namespaces_is_refused() -> None:
    assert "untouchedNamespaces" in template(WITH_SECRET | {"drain": {"untouchedNamespaces": ["A b"]}}).err
