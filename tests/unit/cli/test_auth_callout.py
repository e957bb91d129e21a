"""`nats-keys`, `nats-config` and the settings of `auth-callout`."""

import stat
from collections.abc import Mapping
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from typer.testing import CliRunner

from gpuledger.cli.app import app
from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.edge.authcallout.issuer_key import issuer_of, read_issuer_key
from gpuledger.ledger.server_config import REQUIRED_LOGINS
from gpuledger.runtime.settings import (
    CALLOUT_SEED,
    CALLOUT_SERVICE_ACCOUNT,
    NATS_CREDENTIALS,
    NATS_TOKEN_FILE,
    NATS_URL,
    SettingsError,
    read_callout_settings,
    read_nats_identity,
)


def invoke(*arguments: str) -> str:
    """Run a command; it fails as it fails for people."""
    result = CliRunner().invoke(app, arguments)
    if isinstance(result.exception, CliError):
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
        (["--listen", "foo"], "'foo' is not an address"),
        (["--cluster", "lab", "--route", "foo"], "'foo' is no route"),
    ],
)
def test_a_configuration_that_cannot_be(options: list[str], advice: str) -> None:
    with pytest.raises(CliError, match=advice) as refused:
        invoke("nats-config", *options)
    assert refused.value.code is ExitCode.USAGE


@pytest.mark.parametrize(
    ("environ", "advice"),
    [
        ({}, NATS_URL),
        ({NATS_URL: "nats://h:1"}, CALLOUT_SEED),
        ({NATS_URL: "nats://h:1", CALLOUT_SEED: "absent"}, "issuer's key is missing"),
        ({NATS_URL: "nats://h:1", CALLOUT_SEED: "seed"}, NATS_CREDENTIALS),
        ({NATS_URL: "nats://u:p@h:1", CALLOUT_SEED: "seed"}, "NAMESPACE/NAME"),
        ({NATS_URL: "nats://u:p@h:1", CALLOUT_SEED: "seed", CALLOUT_SERVICE_ACCOUNT: "a/b/c"}, "NAMESPACE/NAME"),
    ],
)
def test_settings_that_are_missing(environ: Mapping[str, str], advice: str, tmp_path: Path) -> None:
    (tmp_path / "seed").touch()
    given = {name: str(tmp_path / value) if name == CALLOUT_SEED else value for name, value in environ.items()}
    with pytest.raises(SettingsError, match=advice):
        read_callout_settings(given)


def test_one_login_is_enough(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).touch()
    environ = {NATS_CREDENTIALS: str(tmp_path / "a"), NATS_TOKEN_FILE: str(tmp_path / "b")}
    with pytest.raises(SettingsError, match="One login is enough"):
        read_nats_identity(environ)
