"""The settings of the health gateway: what they mean, and what is refused with which words."""

from pathlib import Path

import pytest

from gpuledger.runtime import gateway_settings as names
from gpuledger.runtime.gateway_settings import TlsFiles, read_gateway_settings
from gpuledger.runtime.settings import NATS_URL, SettingsError


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    files = {names.CERTIFICATE: "tls.crt", names.KEY: "tls.key", names.CLIENT_CA: "ca.crt"}
    for name in files.values():
        (tmp_path / name).touch()
    given = {name: str(tmp_path / file) for name, file in files.items()}
    return given | {NATS_URL: "nats://n", names.LISTEN: "0.0.0.0:1", names.LISTEN_MTLS: "0.0.0.0:2"}


def test_all_settings(environ: dict[str, str], tmp_path: Path) -> None:
    given = {names.REPORTERS: "a, b/c,", names.CLUSTER_REPORTERS: "d/e", names.CERTIFICATES: '{"x": "*"}'}
    found = read_gateway_settings(environ | given)
    assert found.reporters == {("a", "*"), ("b", "c")}
    assert found.cluster_reporters == {("d", "e")}
    assert found.certificates == {"x": "*"}
    assert found.tls == TlsFiles(tmp_path / "tls.crt", tmp_path / "tls.key", tmp_path / "ca.crt")
    assert (found.listen, found.listen_mtls, found.audience) == ("0.0.0.0:1", "0.0.0.0:2", "gpuledger-health")


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({NATS_URL: ""}, "URL is missing"),
        ({names.LISTEN: "", names.LISTEN_MTLS: "", names.CLIENT_CA: ""}, "has no address"),
        ({names.CLIENT_CA: ""}, "belong together"),
        ({names.LISTEN_MTLS: ""}, "belong together"),
        ({names.KEY: "/nowhere"}, "'/nowhere', which is no file"),
        ({names.CERTIFICATE: ""}, "which is no file"),
        ({names.REPORTERS: "a/"}, "has 'a/'"),
        ({names.REPORTERS: "/a"}, "has '/a'"),
        ({names.REPORTERS: "a/b/c"}, "has 'a/b/c'"),
        ({names.CERTIFICATES: "x"}, "is no JSON"),
        ({names.CERTIFICATES: "[]"}, "JSON object such as"),
        ({names.CERTIFICATES: '{"a": 1}'}, "JSON object such as"),
        ({names.CERTIFICATES: '{"a": ""}'}, "JSON object such as"),
    ],
)
def test_what_is_refused(environ: dict[str, str], changed: dict[str, str], text: str) -> None:
    with pytest.raises(SettingsError, match=text):
        read_gateway_settings(environ | changed)
