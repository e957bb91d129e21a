"""`nats-keys` and `nats-config`: a NATS server whose agents log in by their service account."""

import re
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.render import Console, message, quiet_pipe
from gpuledger.ledger.nkeys import KEY_BYTES, KeyKind, KeyTextError, public_key
from gpuledger.ledger.permissions import Role
from gpuledger.ledger.server_config import (
    CALLOUT_LOGIN,
    LOGINS,
    REQUIRED_LOGINS,
    SYSTEM_LOGIN,
    ClusterConfig,
    ServerConfig,
    ServerJwts,
    TlsFiles,
    config_text,
    user_of,
)
from gpuledger.runtime.clock import system_clock
from gpuledger.runtime.telemetry_http import ListenError, parse_address

if TYPE_CHECKING:
    from gpuledger.ledger.operator_mode import OperatorKeys

PRIVATE: Final = 0o600
SEED_FILE: Final = "seed"
ISSUER_FILE: Final = "issuer"
XKEY_FILE: Final = "xkey"
XKEY_PUBLIC_FILE: Final = "xkey.pub"
ACCOUNT_FILE: Final = "account"
ACCOUNT_SEED_FILE: Final = "account-seed"
CALLOUT_FOLDER: Final = "callout"
LOGINS_FOLDER: Final = "logins"
SERVER_FOLDER: Final = "server"
OFFLINE_FOLDER: Final = "offline"
OPERATOR_JWT: Final = "operator.jwt"
SENTINEL_JWT: Final = "sentinel.jwt"
ACCOUNT_JWTS: Final = "accounts"

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
Xkey = Annotated[
    Path | None,
    typer.Option("--xkey", metavar="FILE", help="Encrypt what the service is asked for this key, secret or public."),
]
Jwts = Annotated[
    Path | None,
    typer.Option("--jwts", metavar="DIR", help="Operator mode: the folder `server` of `nats-keys --operator`."),
]
Resolver = Annotated[
    Path | None,
    typer.Option(
        "--resolver",
        metavar="DIR",
        help="With --jwts: a folder of the server that has the accounts, to be changed there.",
    ),
]
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


def nats_keys(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A folder for the files.")],
    xkey: Annotated[
        bool, typer.Option("--xkey", help="Also a key for which the server encrypts what it asks the service.")
    ] = False,
    operator: Annotated[
        bool, typer.Option("--operator", help="Keys, JWTs and logins of a whole server in operator mode.")
    ] = False,
) -> None:
    """Make the key with which the auth callout service issues logins: `seed`, a secret, and `issuer`, its public part.

    Files that are there already are never overwritten.
    """
    texts = _operator_texts(with_xkey=xkey) if operator else _config_texts(with_xkey=xkey)
    if directory.exists() and not directory.is_dir():
        raise CliError(f"{directory} is a file", "Name a folder for the files", ExitCode.USAGE)
    if taken := [str(directory / name) for name in texts if (directory / name).exists()]:
        raise CliError(f"{' and '.join(taken)} would be overwritten", "Name another folder, or move them away first")
    for name, text in texts.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        _write(directory / name, f"{text.strip()}\n")
    if operator:
        message(
            f"Wrote {directory / SERVER_FOLDER}, for `nats-config --jwts`; {directory / CALLOUT_FOLDER}, for the "
            f"callout service alone; {directory / LOGINS_FOLDER}, each for its user; and {directory / OFFLINE_FOLDER}, "
            "which can make all of them and belongs where no process can read it."
        )
        return
    message(f"Wrote {directory / SEED_FILE}, for the callout service alone, and {directory / ISSUER_FILE}.")


def _config_texts(*, with_xkey: bool) -> dict[str, str]:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415 - takes a while

    from gpuledger.ledger.jwt import SigningKey  # noqa: PLC0415

    key = SigningKey(KeyKind.ACCOUNT, Ed25519PrivateKey.from_private_bytes(_draw()))
    return {SEED_FILE: key.seed, ISSUER_FILE: key.public, **(_xkey_texts() if with_xkey else {})}


def _xkey_texts() -> dict[str, str]:
    from gpuledger.edge.authcallout.xkey import CurveBox  # noqa: PLC0415

    box = CurveBox(_draw())
    return {XKEY_FILE: box.seed, XKEY_PUBLIC_FILE: box.public}


def _operator_texts(*, with_xkey: bool) -> dict[str, str]:
    """All files of operator mode by their names; each folder is for somebody else."""
    from gpuledger.ledger import operator_mode  # noqa: PLC0415

    keys, now_s = operator_mode.new_keys(_draw), int(system_clock().timestamp())
    xkey = _xkey_texts() if with_xkey else {}
    callout = operator_mode.callout_login(keys, _draw, now_s)
    jwts = operator_mode.server_jwts(keys, callout.public, xkey.get(XKEY_PUBLIC_FILE), _draw, now_s)
    logins = {str(role): operator_mode.role_login(keys, role, _draw, now_s) for role in Role}
    logins[SYSTEM_LOGIN] = operator_mode.system_login(keys, _draw, now_s)
    service = {
        SEED_FILE: keys.callout_signing.seed,
        ACCOUNT_SEED_FILE: keys.agents_signing.seed,
        ACCOUNT_FILE: keys.agents.public,
        f"{CALLOUT_LOGIN}.creds": callout.credentials,
        **xkey,
    }
    server = {OPERATOR_JWT: jwts.operator, SENTINEL_JWT: jwts.sentinel}
    server |= {f"{ACCOUNT_JWTS}/{public}.jwt": jwt for public, jwt in jwts.accounts.items()}
    return {
        **_within(OFFLINE_FOLDER, _offline(keys)),
        **_within(SERVER_FOLDER, server),
        **_within(CALLOUT_FOLDER, service),
        **_within(LOGINS_FOLDER, {f"{login}.creds": made.credentials for login, made in logins.items()}),
    }


def _offline(keys: "OperatorKeys") -> dict[str, str]:
    return {f"{name}.seed": key.seed for name, key in keys._asdict().items() if not name.endswith("_signing")}


def _within(folder: str, texts: Mapping[str, str]) -> dict[str, str]:
    return {f"{folder}/{name}": text for name, text in texts.items()}


def _draw() -> bytes:
    return secrets.token_bytes(KEY_BYTES)


def nats_config(
    passwords: Passwords = None,
    seed: Seed = None,
    issuer: Issuer = None,
    xkey: Xkey = None,
    jwts: Jwts = None,
    resolver: Resolver = None,
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
    _refuse_halves(certificate, key, cluster, routes)
    _refuse_mixed_modes(jwts, resolver, passwords, seed, issuer, xkey)
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
            None if xkey is None else _xkey_public(xkey),
            None if jwts is None else _read_jwts(jwts),
            resolver,
        )
    )
    if output is not None:
        _write(output, text)
        return
    console = Console.standard()
    with quiet_pipe(console.out):
        console.out.write(text)


def _refuse_halves(certificate: Path | None, key: Path | None, cluster: str | None, routes: list[str] | None) -> None:
    if (certificate is None) != (key is None):
        raise CliError("A certificate and its key belong together", "Give both, or neither", ExitCode.USAGE)
    if (cluster is None) != (not routes):
        raise CliError("A cluster has a name and routes", "Give --cluster and --route, or neither", ExitCode.USAGE)


def _refuse_mixed_modes(jwts: Path | None, resolver: Path | None, *by_configuration: object) -> None:
    if jwts is not None and any(by_configuration):
        raise CliError("In operator mode logins and keys stand in the JWTs", "Give --jwts without them", ExitCode.USAGE)
    if resolver is not None and jwts is None:
        raise CliError("A resolver is for operator mode", "Give --jwts as well", ExitCode.USAGE)


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
    from gpuledger.edge.authcallout.keys import issuer_of, read_issuer_key  # noqa: PLC0415 - takes a while

    return issuer_of(read_issuer_key(seed))


def _xkey_public(file: Path) -> str:
    from gpuledger.edge.authcallout.keys import xkey_public  # noqa: PLC0415 - takes a while

    return xkey_public(file)


def _read_jwts(folder: Path) -> ServerJwts:
    try:
        operator, sentinel = ((folder / name).read_text().strip() for name in (OPERATOR_JWT, SENTINEL_JWT))
        accounts = {file.stem: file.read_text().strip() for file in sorted((folder / ACCOUNT_JWTS).glob("*.jwt"))}
    except (OSError, ValueError) as error:
        raise CliError(
            f"{folder} has no JWTs of a server: {error}",
            "Name the folder `server` that `gpuledger nats-keys --operator` made",
            ExitCode.USAGE,
        ) from error
    if not accounts:
        raise CliError(f"{folder / ACCOUNT_JWTS} has no JWT of an account", "Add them there", ExitCode.USAGE)
    return ServerJwts(operator, accounts, sentinel)


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
