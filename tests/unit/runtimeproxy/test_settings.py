"""The settings of the runtime proxy."""

from pathlib import Path

import pytest

from gpuledger.runtime.settings import SettingsError
from gpuledger.runtimeproxy.injection import DeviceNaming
from gpuledger.runtimeproxy.settings import read_proxy_settings


def test_defaults() -> None:
    settings = read_proxy_settings({})
    assert settings.listen == Path("/run/gpuledger/runtime.sock")
    assert settings.runtime == Path("/run/containerd/containerd.sock")
    assert settings.naming == DeviceNaming()
    assert settings.names.allocated == "scheduling.kooperator/device-allocated"


def test_everything_set() -> None:
    settings = read_proxy_settings(
        {
            "GPULEDGER_RUNTIME_PROXY_LISTEN": "unix:///a/l.sock",
            "GPULEDGER_RUNTIME_ENDPOINT": "/run/crio/crio.sock",
            "GPULEDGER_RUNTIME_PROXY_DIR": "/d",
            "GPULEDGER_RUNTIME_PROXY_DRAIN_S": "5",
            "GPULEDGER_ALLOCATE": "both",
            "GPULEDGER_CDI_KIND": "example.com/card",
            "GPULEDGER_SHARING_DOMAIN": "example.com",
        }
    )
    assert (settings.listen, settings.runtime) == (Path("/a/l.sock"), Path("/run/crio/crio.sock"))
    assert (settings.folder, settings.drain_max_s) == (Path("/d"), 5.0)
    assert settings.naming == DeviceNaming(by_env=True, cdi_kind="example.com/card")
    assert settings.names.domain == "example.com"


def test_by_cdi_alone_no_variable_names_a_card() -> None:
    assert read_proxy_settings({"GPULEDGER_ALLOCATE": "cdi"}).naming == DeviceNaming(False, "nvidia.com/gpu")


@pytest.mark.parametrize(
    ("environ", "text"),
    [
        ({"GPULEDGER_RUNTIME_PROXY_LISTEN": "tcp://127.0.0.1:1"}, "no unix socket"),
        ({"GPULEDGER_RUNTIME_PROXY_LISTEN": "unix:///" + "a" * 107}, "107 bytes"),
        ({"GPULEDGER_RUNTIME_ENDPOINT": "unix:///run/gpuledger/runtime.sock"}, "same socket"),
        ({"GPULEDGER_RUNTIME_PROXY_DRAIN_S": "soon"}, "no number"),
        ({"GPULEDGER_RUNTIME_PROXY_DRAIN_S": "-1"}, "from 0"),
        ({"GPULEDGER_RUNTIME_PROXY_DRAIN_S": "nan"}, "from 0"),
        ({"GPULEDGER_ALLOCATE": "magic"}, "env, cdi, both"),
        ({"GPULEDGER_SHARING_DOMAIN": "_"}, "DNS"),
    ],
)
def test_what_is_invalid_says_so(environ: dict[str, str], text: str) -> None:
    with pytest.raises(SettingsError, match=text):
        read_proxy_settings(environ)
