"""`gpuledger permissions`: what each role may do on the NATS server, for the server's configuration."""

from typing import Annotated

import typer

from gpuledger.cli.render import Console, quiet_pipe
from gpuledger.ledger.permissions import Role, role_text


def permissions(role: Annotated[Role, typer.Argument(help="Whose permissions to print.")]) -> None:
    """Print the permissions of a role on the NATS server, as a user of its configuration.

    docs/service-credentials.md says which role is for what. Agents have permissions of their own
    (`gpuledger agent permissions`).
    """
    console = Console.standard()
    with quiet_pipe(console.out):
        console.out.write(f"{role_text(role)}\n")
