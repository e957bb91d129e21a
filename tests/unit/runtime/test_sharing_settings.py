"""The names of sharing, as the environment sets them."""

import pytest

from gpuledger.api.sharing import SharingNames
from gpuledger.runtime.settings import SettingsError
from gpuledger.runtime.sharing_settings import read_sharing_names


def test_without_settings_the_names_are_those_by_default() -> None:
    assert read_sharing_names({"GPULEDGER_SHARING_DOMAIN": "", "GPULEDGER_SHARING_SCHEDULER": ""}) == SharingNames()


def test_all_settings() -> None:
    given = {
        "GPULEDGER_SHARING_DOMAIN": "gpus.example",
        "GPULEDGER_SHARING_SCHEDULER": "sharing",
        "GPULEDGER_SHARING_ACCOUNT": "system:serviceaccount:gpus:extender",
    }
    names = SharingNames("gpus.example", "sharing", "system:serviceaccount:gpus:extender")
    assert read_sharing_names(given) == names


@pytest.mark.parametrize("domain", ["a/b", "-a", "A", "a..b", "é", "a" * 201])
def test_a_domain_that_kubernetes_cannot_have_is_refused(domain: str) -> None:
    with pytest.raises(SettingsError, match=r"GPULEDGER_SHARING_DOMAIN=.* is no DNS name"):
        read_sharing_names({"GPULEDGER_SHARING_DOMAIN": domain})


@pytest.mark.parametrize("variable", ["GPULEDGER_SHARING_SCHEDULER", "GPULEDGER_SHARING_ACCOUNT"])
def test_a_name_that_kubernetes_cannot_have_is_refused(variable: str) -> None:
    with pytest.raises(SettingsError, match=rf"{variable}=.* is no name of Kubernetes"):
        read_sharing_names({variable: "o'hara"})
