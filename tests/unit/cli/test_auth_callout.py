"""`nats-keys`, `nats-config` and the settings of `auth-callout`."""

import stat
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from typer.testing import CliRunner

from gpuledger.cli.app import app
from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.edge.authcallout.keys import issuer_of, read_issuer_key, read_keys
from gpuledger.ledger.server_config import REQUIRED_LOGINS
from gpuledger.local.servers.nats import find_binary
from gpuledger.runtime.settings import (
    CALLOUT_ACCOUNT,
    CALLOUT_ACCOUNT_SEED,
    CALLOUT_SEED,
    CALLOUT_SERVICE_ACCOUNT,
    CALLOUT_XKEY,
    NATS_CREDENTIALS,
    NATS_TOKEN_FILE,
    NATS_URL,
    SettingsError,
    read_callout_settings,
    read_nats_identity,
)

FILES = (CALLOUT_SEED, CALLOUT_ACCOUNT_SEED, CALLOUT_XKEY)
SERVED = {NATS_URL: "nats://u:p@h:1", CALLOUT_SEED: "seed", CALLOUT_SERVICE_ACCOUNT: "gpu/agent"}


def invoke(*arguments: str) -> str:
    """Run a command; it fails as it fails for people."""
    result = CliRunner().invoke(app, arguments)
    if isinstance(result.exception, CliError | SettingsError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def passwords(tmp_path: Path) -> Path:
    folder = tmp_path / "logins"
    folder.mkdir()
    for login in REQUIRED_LOGINS:
        (folder / login).write_text("secret\n")
    return folder


def test_keys_are_made_once(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    invoke("nats-keys", str(folder))
    seed, issuer = folder / "seed", (folder / "issuer").read_text().strip()
    assert stat.S_IMODE(seed.stat().st_mode) == 0o600
    assert issuer_of(read_issuer_key(seed)) == issuer
    with pytest.raises(CliError, match="would be overwritten"):
        invoke("nats-keys", str(folder))
    assert issuer_of(read_issuer_key(seed)) == issuer


def test_a_key_in_pem_serves_too(tmp_path: Path) -> None:
    key, file = Ed25519PrivateKey.generate(), tmp_path / "key.pem"
    file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    assert issuer_of(read_issuer_key(file)) == issuer_of(key)
    for text in ("", "SUAB", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----"):
        file.write_text(text)
        with pytest.raises(SettingsError, match="nats-keys"):
            read_issuer_key(file)


def test_keys_of_operator_mode_are_read_together(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    invoke("nats-keys", "--operator", str(folder))
    service = folder / "callout"
    account = (service / "account").read_text().strip()
    environ = {**SERVED, CALLOUT_SEED: str(service / "seed"), CALLOUT_ACCOUNT_SEED: str(service / "account-seed")}
    keys = read_keys(read_callout_settings({**environ, CALLOUT_ACCOUNT: account}))
    assert len({keys.account, keys.issuer.public, keys.users.public}) == 3
    assert keys.account == account
    with pytest.raises(SettingsError, match="no public key of a NATS account"):
        read_keys(read_callout_settings({**environ, CALLOUT_ACCOUNT: "UABC"}))


def test_a_key_is_written_into_a_folder_and_not_over_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CliError, match="is a file"):
        invoke("nats-keys", str(tmp_path / "file"))


def test_a_configuration_with_the_issuer_of_a_seed(tmp_path: Path, passwords: Path) -> None:
    invoke("nats-keys", str(tmp_path / "keys"))
    output = tmp_path / "nats.conf"
    seed = str(tmp_path / "keys" / "seed")
    invoke("nats-config", "--passwords", str(passwords), "--seed", seed, "--output", str(output))
    assert stat.S_IMODE(output.stat().st_mode) == 0o600
    assert (tmp_path / "keys" / "issuer").read_text().strip() in output.read_text()
    assert Path(seed).read_text().strip() not in output.read_text()


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        (["--tls-key", "k"], "belong together"),
        (["--cluster", "lab"], "a name and routes"),
        (["--issuer", "UABC"], "no public key of a NATS account"),
        (["--passwords", "/nowhere"], "No password in /nowhere/services"),
        (["--jwts", "/nowhere"], "/nowhere has no JWTs of a server"),
        (["--jwts", "/nowhere", "--passwords", "/nowhere"], "stand in the JWTs"),
        (["--resolver", "/data/jwt"], "is for operator mode"),
        (["--listen", "foo"], "'foo' is not an address"),
        (["--cluster", "lab", "--route", "foo"], "'foo' is no route"),
    ],
)
def test_a_configuration_that_cannot_be(options: list[str], advice: str) -> None:
    with pytest.raises(CliError, match=advice) as refused:
        invoke("nats-config", *options)
    assert refused.value.code is ExitCode.USAGE


def test_an_xkey_is_made_and_named_by_either_of_its_files(tmp_path: Path, passwords: Path) -> None:
    folder = tmp_path / "keys"
    invoke("nats-keys", str(folder), "--xkey")
    public, seed = (folder / "xkey.pub").read_text().strip(), (folder / "xkey").read_text().strip()
    assert (public[0], seed[:2], stat.S_IMODE((folder / "xkey").stat().st_mode)) == ("X", "SX", 0o600)
    for name in ("xkey", "xkey.pub"):
        output = tmp_path / f"{name}.conf"
        options = ("--passwords", str(passwords), "--seed", str(folder / "seed"), "--output", str(output))
        invoke("nats-config", *options, "--xkey", str(folder / name))
        assert f"xkey: {public}\n" in output.read_text()
        assert seed not in output.read_text()
    with pytest.raises(SettingsError, match="no seed of an xkey"):
        invoke("nats-config", "--xkey", str(folder / "seed"))


def test_what_a_server_in_operator_mode_has_names_no_secret(tmp_path: Path) -> None:
    folder, output = tmp_path / "keys", tmp_path / "nats.conf"
    invoke("nats-keys", "--operator", "--xkey", str(folder))
    with pytest.raises(CliError, match="would be overwritten"):
        invoke("nats-keys", "--operator", str(folder))
    invoke("nats-config", "--jwts", str(folder / "server"), "--server-name", "n1", "--output", str(output))
    checked = subprocess.run((str(find_binary()), "-t", "-c", str(output)), capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    served = "".join(file.read_text() for file in (output, *(folder / "server").rglob("*.jwt")))
    secret = [*(folder / "offline").iterdir(), *(folder / "callout").glob("*seed"), folder / "callout" / "xkey"]
    assert len(secret) == 8
    for file in secret:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert file.read_text().strip() not in served
    (folder / "server" / "accounts").rename(tmp_path / "elsewhere")
    with pytest.raises(CliError, match="no JWT of an account"):
        invoke("nats-config", "--jwts", str(folder / "server"))


@pytest.mark.parametrize(
    ("environ", "advice"),
    [
        ({}, NATS_URL),
        ({NATS_URL: "nats://h:1"}, CALLOUT_SEED),
        ({NATS_URL: "nats://h:1", CALLOUT_SEED: "absent"}, "issuer's key is missing"),
        ({NATS_URL: "nats://h:1", CALLOUT_SEED: "seed"}, NATS_CREDENTIALS),
        ({NATS_URL: "nats://u:p@h:1", CALLOUT_SEED: "seed"}, "NAMESPACE/NAME"),
        ({**SERVED, CALLOUT_ACCOUNT: "A"}, "belong together"),
        ({**SERVED, CALLOUT_ACCOUNT_SEED: "seed"}, "belong together"),
        ({**SERVED, CALLOUT_XKEY: "absent"}, "not a file"),
        ({NATS_URL: "nats://u:p@h:1", CALLOUT_SEED: "seed", CALLOUT_SERVICE_ACCOUNT: "a/b/c"}, "NAMESPACE/NAME"),
    ],
)
def test_settings_that_are_missing(environ: Mapping[str, str], advice: str, tmp_path: Path) -> None:
    (tmp_path / "seed").touch()
    given = {name: str(tmp_path / value) if name in FILES else value for name, value in environ.items()}
    with pytest.raises(SettingsError, match=advice):
        read_callout_settings(given)


def test_one_login_is_enough(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).touch()
    environ = {NATS_CREDENTIALS: str(tmp_path / "a"), NATS_TOKEN_FILE: str(tmp_path / "b")}
    with pytest.raises(SettingsError, match="One login is enough"):
        read_nats_identity(environ)
