"""`gpuledger incident export` and `incident open`: an incident as one file that proves itself, and such a file read."""

from pathlib import Path
from typing import Annotated

import typer

from gpuledger.cli.backend import open_backend
from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.options import DataDir
from gpuledger.cli.render import message
from gpuledger.cli.render.bundle_page import bundle_page
from gpuledger.cli.render.page import AnswerOutput, Output, show_answer
from gpuledger.cli.run import run
from gpuledger.runtime.clock import random_secret
from gpuledger.tools.bundle.export import ExportOptions, event_type, export_incident
from gpuledger.tools.bundle.redaction import Class
from gpuledger.tools.bundle.signing import private_key, public_key
from gpuledger.tools.bundle.story import bundle_document
from gpuledger.tools.bundle.verify import Bundle, open_bundle

SALT_FILE_BYTES_MAX = 1024

Id = Annotated[str, typer.Argument(metavar="ID", help="The incident's id.", show_default=False)]
Target = Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The file to write.", show_default=False)]
Redact = Annotated[
    list[Class] | None,
    typer.Option("--redact", help="Replace values of this kind by pseudonyms with salted commitments; repeatable."),
]
Withhold = Annotated[
    list[str] | None,
    typer.Option("--withhold", metavar="EVENT", help="Leave events such as node.labelled out, but for their digests."),
]
Salt = Annotated[
    Path | None,
    typer.Option(
        "--salt",
        metavar="FILE",
        help="A secret of 32 bytes in hexadecimal, by which the same values get the same pseudonyms again.",
        show_default="a new one, which is not kept",
    ),
]
Key = Annotated[
    Path | None, typer.Option("--key", metavar="FILE", help="Sign with this Ed25519 key (PEM).", show_default=False)
]
BundleFile = Annotated[Path, typer.Argument(metavar="FILE", help="A file that `gpuledger incident export` wrote.")]
PublicKey = Annotated[
    Path | None,
    typer.Option("--public-key", metavar="FILE", help="Refuse it unless it is signed with this key's private one."),
]
SealDigests = Annotated[
    list[str] | None,
    typer.Option("--seal", metavar="DIGEST", help="Refuse it unless these seals vouch for all of its; repeatable."),
]


def export(
    incident_id: Id,
    target: Target,
    redact: Redact = None,
    withhold: Withhold = None,
    salt: Salt = None,
    key: Key = None,
    data_dir: DataDir = None,
) -> None:
    """Write an incident to a file: its events with proofs that they stand in the ledger, redacted and signed at will.

    `gpuledger incident open` reads the file anywhere, without a ledger.
    """
    if target.exists():
        raise CliError(f"{target} exists", "Choose another name, or remove it first", ExitCode.USAGE)
    if salt is not None and not redact:
        raise CliError("--salt does not apply: nothing is redacted", "Add --redact", ExitCode.USAGE)
    options = ExportOptions(
        frozenset(redact or ()),
        random_secret() if salt is None else _salt(salt),
        frozenset(map(event_type, withhold or ())),
        None if key is None else private_key(key),
    )
    bundle = run(_export(incident_id.removeprefix("incident/"), target, options, data_dir))
    if bundle is None:
        hint = "List them with `gpuledger incident list --all`"
        raise CliError(f"incident {incident_id!r} was not found", hint)
    sealed = sum(one.in_seal for one in bundle.events)
    message(f"Exported {len(bundle.events):,} events to {target}, {sealed:,} of them under {bundle.seals:,} seals.")
    message(f"Digest: {bundle.digest}")


def open_(
    file: BundleFile,
    public: PublicKey = None,
    seal: SealDigests = None,
    output: Output = AnswerOutput.TABLE,
) -> None:
    """Check a bundle and show its incident: reports, containers, and events with what stands for each.

    It needs no ledger. A file that was changed, or is signed with another key, is refused with the place.
    """
    expected_key = None if public is None else public_key(public)
    try:
        with file.open("rb") as opened:
            bundle = open_bundle(opened, expected_key=expected_key, expected_seals=seal or ())
    except OSError as error:
        raise CliError(f"{file} cannot be read: {error.strerror}", "Name another file", ExitCode.USAGE) from error
    show_answer(bundle_document(bundle), output, bundle_page)


async def _export(incident: str, target: Path, options: ExportOptions, data_dir: Path | None) -> Bundle | None:
    async with open_backend(data_dir, "incident export", asks=True) as backend:
        return await export_incident(backend, incident, target, options)


def _salt(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            text = file.read(SALT_FILE_BYTES_MAX).decode().strip()
        return bytes.fromhex(text)
    except OSError as error:
        raise CliError(f"{path} cannot be read: {error.strerror}", "Name another file", ExitCode.USAGE) from error
    except ValueError as error:
        hint = "Make one with `openssl rand -hex 32`"
        raise CliError(f"{path} holds no salt in hexadecimal", hint, ExitCode.USAGE) from error
