"""`auth-callout`, `nats-keys` and `nats-config`: a NATS server whose agents log in by their service account."""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final

import typer

from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.render import Console, message, message_unless_closed, quiet_pipe
from gpuledger.cli.run import run
from gpuledger.ledger.nkeys import KeyKind, KeyTextError, public_key
from gpuledger.ledger.server_config import (
    LOGINS,
    REQUIRED_LOGINS,
    ClusterConfig,
    ServerConfig,
    TlsFiles,
    config_text,
    user_of,
)
from gpuledger.runtime.settings import read_callout_settings
from gpuledger.runtime.tasks import run_until_stopped
from gpuledger.runtime.telemetry import configure_logging
from gpuledger.runtime.telemetry_http import ListenError, parse_address

ENDING_MAX_S: Final = 10.0
PRIVATE: Final = 0o600
SEED_FILE: Final = "seed"
ISSUER_FILE: Final = "issuer"

_ROUTE: Final = re.compile(r"(nats|tls)://[^\s/:]+:\d{1,5}", re.ASCII)

Passwords = Annotated[
    Path | None,
    typer.Option(
        "--passwords",
        metavar="DIR",
        help=f"A folder with a password per file: {', '.join(LOGINS)}. Default: variables of the server's environment.",
    ),
]
Seed = Annotated[
    Path | None, typer.Option("--seed", metavar="FILE", help="The issuer's key, whose public part counts.")
]
Issuer = Annotated[str | None, typer.Option("--issuer", metavar="A...", help="The issuer's public key instead.")]
Listen = Annotated[str, typer.Option("--listen", metavar="HOST:PORT", help="Where clients connect.")]
Monitor = Annotated[str, typer.Option("--monitor", metavar="HOST:PORT", help="Where the server answers for probes.")]
Store = Annotated[Path, typer.Option("--store", metavar="DIR", help="Where the server keeps its streams.")]
ServerName = Annotated[
    str | None, typer.Option("--server-name", metavar="NAME", show_default="$HOSTNAME", help="Unique in its cluster.")
]
Certificate = Annotated[
    Path | None,
    typer.Option("--tls-certificate", metavar="FILE", help="The server's certificate; clients need TLS then."),
]
Key = Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="Its key.")]
Ca = Annotated[
    Path | None, typer.Option("--tls-ca", metavar="FILE", help="Authorities of the cluster's other servers.")
]
Cluster = Annotated[str | None, typer.Option("--cluster", metavar="NAME", help="The name of the server's cluster.")]
ClusterListen = Annotated[
    str, typer.Option("--cluster-listen", metavar="HOST:PORT", help="Where the cluster's servers connect.")
]
Routes = Annotated[
    list[str] | None,
    typer.Option("--route", metavar="URL", help="A server of the cluster, such as nats://nats-0:6222."),
]
Output = Annotated[
    Path | None, typer.Option("--output", metavar="FILE", help="Write to this file, for its owner alone.")
]


def auth_callout() -> None:
    """Let agents log in to a NATS server by the tokens of their service account, until Ctrl-C.

    Settings come from the environment; docs/agent-credentials.md describes them.
    """
    from gpuledger.compose.auth_callout import CalloutProcess  # noqa: PLC0415 - takes a second to import

    configure_logging()
    process = CalloutProcess(read_callout_settings(os.environ))
    run(run_until_stopped(process.run(message_unless_closed), message_unless_closed, ending_max_s=ENDING_MAX_S))


def nats_keys(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A folder for the two files.")],
) -> None:
    """Make the key with which the auth callout service issues logins: `seed`, a secret, and `issuer`, its public part.

    Files that are there already are never overwritten.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415 - takes a while

    from gpuledger.edge.authcallout.issuer_key import issuer_of  # noqa: PLC0415
    from gpuledger.ledger.nkeys import seed_text  # noqa: PLC0415

    key = Ed25519PrivateKey.generate()
    texts = {SEED_FILE: seed_text(KeyKind.ACCOUNT, key.private_bytes_raw()), ISSUER_FILE: issuer_of(key)}
    if taken := [str(directory / name) for name in texts if (directory / name).exists()]:
        raise CliError(f"{' and '.join(taken)} would be overwritten", "Name another folder, or move them away first")
    if directory.exists() and not directory.is_dir():
        raise CliError(f"{directory} is a file", "Name a folder for the two files", ExitCode.USAGE)
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        _write(directory / name, f"{text}\n")
    message(f"Wrote {directory / SEED_FILE}, for the callout service alone, and {directory / ISSUER_FILE}.")


def nats_config(
    passwords: Passwords = None,
    seed: Seed = None,
    issuer: Issuer = None,
    listen: Listen = "0.0.0.0:4222",
    monitor: Monitor = "0.0.0.0:8222",
    store: Store = Path("/data/jetstream"),
    server_name: ServerName = None,
    certificate: Certificate = None,
    key: Key = None,
    ca: Ca = None,
    cluster: Cluster = None,
    cluster_listen: ClusterListen = "0.0.0.0:6222",
    routes: Routes = None,
    output: Output = None,
) -> None:
    """Print the configuration of a NATS server for a ledger whose agents log in by their service account.

    It has the accounts of ledger, agents and auth callout, users with the least permissions, JetStream that syncs
    every write, and TLS and a cluster if asked for. docs/agent-credentials.md explains it.
    """
    if (certificate is None) != (key is None):
        raise CliError("A certificate and its key belong together", "Give both, or neither", ExitCode.USAGE)
    if (cluster is None) != (not routes):
        raise CliError("A cluster has a name and routes", "Give --cluster and --route, or neither", ExitCode.USAGE)
    _refuse_odd_addresses((listen, monitor, cluster_listen), routes or ())
    text = config_text(
        ServerConfig(
            listen,
            monitor,
            store,
            server_name,
            None if passwords is None else _read_passwords(passwords),
            _issuer(seed, issuer),
            TlsFiles(certificate, key, ca) if certificate and key else None,
            ClusterConfig(cluster, cluster_listen, routes) if cluster and routes else None,
        )
    )
    if output is not None:
        _write(output, text)
        return
    console = Console.standard()
    with quiet_pipe(console.out):
        console.out.write(text)


def _refuse_odd_addresses(addresses: Iterable[str], routes: Iterable[str]) -> None:
    try:
        for address in addresses:
            parse_address(address)
    except ListenError as error:
        raise CliError(str(error), code=ExitCode.USAGE) from error
    for route in routes:
        if not _ROUTE.fullmatch(route):
            raise CliError(f"{route!r} is no route", "Write nats://HOST:PORT", ExitCode.USAGE)


def _issuer(seed: Path | None, issuer: str | None) -> str | None:
    if seed is None:
        try:
            if issuer is not None:
                public_key(KeyKind.ACCOUNT, issuer)
        except KeyTextError as error:
            raise CliError(f"The issuer is not usable: {error}", "Give the text of `issuer`", ExitCode.USAGE) from error
        return issuer
    from gpuledger.edge.authcallout.issuer_key import issuer_of, read_issuer_key  # noqa: PLC0415 - takes a while

    return issuer_of(read_issuer_key(seed))


def _read_passwords(folder: Path) -> dict[str, str]:
    files = {login: folder / login for login in LOGINS}
    found = {login: file.read_text().strip() for login, file in files.items() if file.is_file()}
    missing = [str(files[login]) for login in REQUIRED_LOGINS if not found.get(login)]
    if missing:
        users = ", ".join(user_of(login) for login in REQUIRED_LOGINS)
        raise CliError(f"No password in {', '.join(missing)}", f"Give one to each of {users}", ExitCode.USAGE)
    if odd := [str(files[login]) for login, text in found.items() if not text or not text.isprintable()]:
        raise CliError(f"No usable password in {', '.join(odd)}", "Write one line of printable text", ExitCode.USAGE)
    return found


def _write(file: Path, text: str) -> None:
    fresh = file.with_name(f"{file.name}.new")
    fresh.touch(mode=PRIVATE)
    fresh.write_text(text)
    fresh.replace(file)
