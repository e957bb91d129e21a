"""The extender's settings from the environment."""

from pathlib import Path

import pytest

from gpuledger.api.sharing import Strategy
from gpuledger.runtime.extender_settings import (
    EXTENDER_CERTIFICATE,
    EXTENDER_CLIENT_CA,
    EXTENDER_KEY,
    EXTENDER_LISTEN,
    ONE_IN_FLIGHT,
    SHARING_STRATEGY,
    ExtenderOptions,
    ExtenderTls,
    read_extender_options,
)
from gpuledger.runtime.settings import SettingsError


def test_nothing_has_to_be_set() -> None:
    assert read_extender_options({}) == ExtenderOptions()
    empty = dict.fromkeys((EXTENDER_LISTEN, EXTENDER_CERTIFICATE, EXTENDER_KEY, SHARING_STRATEGY, ONE_IN_FLIGHT), "")
    assert read_extender_options(empty) == ExtenderOptions()


def test_everything_may_be_set() -> None:
    environ = {
        EXTENDER_LISTEN: "0.0.0.0:1", EXTENDER_CERTIFICATE: "/c", EXTENDER_KEY: "/k", EXTENDER_CLIENT_CA: "/a",
        SHARING_STRATEGY: "MostAllocated", ONE_IN_FLIGHT: "True",
    }  # fmt: skip
    tls = ExtenderTls(Path("/c"), Path("/k"), Path("/a"))
    assert read_extender_options(environ) == ExtenderOptions("0.0.0.0:1", tls, Strategy.MOST_ALLOCATED, True)


@pytest.mark.parametrize(
    ("environ", "hint"),
    [
        ({SHARING_STRATEGY: "Best"}, "Choose from MinorOrder"),
        ({ONE_IN_FLIGHT: "perhaps"}, "neither true nor false"),
        ({EXTENDER_CERTIFICATE: "/c"}, "together"),
        ({EXTENDER_KEY: "/k"}, "together"),
        ({EXTENDER_CLIENT_CA: "/a"}, "together"),
    ],
)
def test_what_cannot_be_used_is_named(environ: dict[str, str], hint: str) -> None:
    with pytest.raises(SettingsError, match=hint):
        read_extender_options(environ)
