"""The configuration of a NATS server with an auth callout, as nats-server itself checks it."""

import os
import subprocess
from pathlib import Path

import pytest

from gpuledger.ledger.nkeys import KeyKind, public_text
from gpuledger.ledger.permissions import Role, exports_text, imports_text, permissions_text, role_permissions, role_user
from gpuledger.ledger.server_config import (
    ISSUER_VARIABLE,
    LOGINS,
    REQUIRED_LOGINS,
    ClusterConfig,
    ServerConfig,
    TlsFiles,
    config_text,
    password_variable,
    user_of,
)
from gpuledger.local.servers.nats import find_binary
from support.nats_logins import Certificates

ISSUER = public_text(KeyKind.ACCOUNT, bytes(range(32)))
ALL = dict.fromkeys(LOGINS, 'a "strange" \\ pässword 1e5')


def check(text: str, folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    file = folder / "nats.conf"
    file.write_text(text)
    command = (str(find_binary()), "-t", "-c", str(file))
    return subprocess.run(command, env={**os.environ, **environ}, capture_output=True, text=True, check=False)


def compact(text: str) -> str:
    return " ".join(text.split())


def test_the_server_accepts_it_with_everything(tmp_path: Path) -> None:
    made = Certificates(tmp_path)
    cluster = ClusterConfig("lab", "127.0.0.1:6222", [f"nats://nats-{number}:6222" for number in range(3)])
    config = ServerConfig(
        "127.0.0.1:4222", "127.0.0.1:8222", tmp_path, "n0", ALL, ISSUER, TlsFiles(*made.server, made.ca), cluster
    )
    checked = check(config_text(config), tmp_path)
    assert checked.returncode == 0, checked.stderr


def test_without_passwords_the_environment_has_them(tmp_path: Path) -> None:
    text = config_text(ServerConfig())
    logins = (*REQUIRED_LOGINS, Role.READER)
    environ = {password_variable(login): "secret" for login in logins} | {ISSUER_VARIABLE: ISSUER, "HOSTNAME": "n0"}
    checked = check(text, tmp_path, **environ)
    assert checked.returncode == 0, checked.stderr
    incomplete = check(text, tmp_path, **{name: value for name, value in environ.items() if name != ISSUER_VARIABLE})
    assert incomplete.returncode != 0


def test_each_role_has_its_permissions_and_who_has_no_password_is_not_there() -> None:
    text = compact(config_text(ServerConfig(passwords=ALL, issuer=ISSUER)))
    for role in Role:
        assert compact(permissions_text(role_permissions(role))) in text
    assert compact(exports_text()) in text
    assert compact(imports_text()) in text
    few = config_text(ServerConfig(passwords=dict.fromkeys(REQUIRED_LOGINS, "p"), issuer=ISSUER))
    assert role_user(Role.RESTORER) not in few
    assert user_of("system") not in few


def test_an_xkey_is_named_where_the_server_has_one() -> None:
    xkey = public_text(KeyKind.CURVE, bytes(range(32)))
    assert f"xkey: {xkey}" in config_text(ServerConfig(passwords=ALL, issuer=ISSUER, xkey=xkey))
    assert "xkey" not in config_text(ServerConfig(passwords=ALL, issuer=ISSUER))


@pytest.mark.parametrize("login", LOGINS)
def test_everybody_with_a_password_is_no_matter_of_the_callout(login: str) -> None:
    text = config_text(ServerConfig(passwords=ALL, issuer=ISSUER))
    (line,) = (line for line in text.splitlines() if "auth_users" in line)
    assert f'"{user_of(login)}"' in line
