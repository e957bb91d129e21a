"""The settings of the agent of machine configuration, and where it finds its API server."""

from pathlib import Path

import pytest
import yaml

from gpuledger.configagent.errors import AccessError, ApiError
from gpuledger.configagent.kube_access import KubeAccess, read_access
from gpuledger.configagent.settings import read_config_agent_settings
from gpuledger.runtime.settings import SettingsError

USER = {"token": "t"}


def test_defaults_are_those_of_a_pod_with_the_hosts_root(tmp_path: Path) -> None:
    settings = read_config_agent_settings({"NODE_NAME": "w1", "GPULEDGER_HOST_ROOT": str(tmp_path)})
    assert settings.state == tmp_path / "var/lib/gpuledger/config-agent"
    assert settings.facts == settings.state / "reports"
    assert settings.systemctl == ("chroot", str(tmp_path), "systemctl")
    assert settings.reboot == (*settings.systemctl, "reboot")
    assert (settings.check_s, settings.reboot_within_s) == (300, 600)
    assert (settings.times().check_s, settings.times().reboot_within_s) == (300, 600)


def test_a_command_of_ones_own_takes_the_place_of_systemctl() -> None:
    environ = {
        "NODE_NAME": "w1",
        "GPULEDGER_HOST_ROOT": "/",
        "GPULEDGER_SYSTEMCTL": "nsenter --target 1 --mount -- systemctl",
        "GPULEDGER_REBOOT_COMMAND": "'/opt/my reboot'",
    }
    settings = read_config_agent_settings(environ)
    assert settings.systemctl == ("nsenter", "--target", "1", "--mount", "--", "systemctl")
    assert settings.reboot == ("/opt/my reboot",)
    plain = read_config_agent_settings({"NODE_NAME": "w1", "GPULEDGER_HOST_ROOT": "/"})
    assert (plain.systemctl, plain.reboot) == (("systemctl",), ("systemctl", "reboot"))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"NODE_NAME": ""}, "The node's name is missing"),
        ({"NODE_NAME": "a/b"}, "or no name"),
        ({"GPULEDGER_HOST_ROOT": "/there/is/none"}, "is no folder; mount the host's root there"),
        ({"GPULEDGER_SYSTEMCTL": "'"}, "is no command"),
        ({"GPULEDGER_CONFIG_CHECK_S": "9"}, "from 10 to 86400"),
        ({"GPULEDGER_REBOOT_WITHIN_S": "soon"}, "from 60 to 3600"),
    ],
)
def test_what_is_wrong_is_named(changed: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        read_config_agent_settings({"NODE_NAME": "w1", "GPULEDGER_HOST_ROOT": "/", **changed})


def test_a_pod_has_its_service_account(tmp_path: Path) -> None:
    token = tmp_path / "token"
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    with pytest.raises(AccessError, match="There is no token"):
        read_access(environ, token)
    token.write_text("one\n")
    access = read_access(environ, token)
    assert (access.server, access.ca) == ("https://[fd00::1]:6443", tmp_path / "ca.crt")
    assert access.authorization() == {"Authorization": "Bearer one"}
    token.write_text("two\n")
    assert access.authorization() == {"Authorization": "Bearer two"}
    with pytest.raises(ApiError, match="authority"):
        access.tls()
    with pytest.raises(AccessError, match="There is no API server"):
        read_access({}, token)


def written(folder: Path, user: object, cluster: dict[str, object] | None = None) -> dict[str, str]:
    file = folder / "config"
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:1", **(cluster or {})}}],
        "users": [{"name": "u", "user": user}],
    }
    file.write_text(yaml.safe_dump(document))
    return {"KUBECONFIG": str(file)}


def test_a_kubeconfig_has_a_server_and_who_asks(tmp_path: Path) -> None:
    access = read_access(written(tmp_path, USER))
    assert access == KubeAccess("http://127.0.0.1:1", token="t")
    assert access.tls() is None
    files = {"client-certificate": "a.crt", "client-key": "/k/a.key", "tokenFile": "t"}
    access = read_access(written(tmp_path, files, {"certificate-authority": "ca.crt"}))
    assert access.certificate == (tmp_path / "a.crt", Path("/k/a.key"))
    assert (access.ca, access.token) == (tmp_path / "ca.crt", tmp_path / "t")
    data = {"client-certificate-data": "Y2VydA==", "client-key-data": "a2V5"}
    access = read_access(written(tmp_path, data))
    assert access.certificate is not None
    assert [one.read_text() for one in access.certificate] == ["cert", "key"]
    assert access.certificate[1].parent.stat().st_mode & 0o077 == 0


def test_a_kubeconfig_that_is_of_no_use_is_named(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match="runs a program"):
        read_access(written(tmp_path, {"exec": {"command": "x"}}))
    (tmp_path / "config").write_text("current-context: nowhere\ncontexts: []\n")
    with pytest.raises(AccessError, match="cannot be used"):
        read_access({"KUBECONFIG": str(tmp_path / "config")})
