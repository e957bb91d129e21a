"""Small private files for passwords, markers and addresses. A reader sees all of a file or nothing."""

import os
import secrets
from pathlib import Path

PRIVATE_MODE = 0o600
_PASSWORD_BYTES = 24


def write_private(path: Path, text: str) -> None:
    """Replace the file's content in one step; only its owner may read it."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_MODE)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def password_in(path: Path) -> str:
    """The password in the file; generates and writes one if there is none.

    Other users of the machine can reach a loopback port, but cannot read the file.
    """
    if not path.exists():
        write_private(path, secrets.token_hex(_PASSWORD_BYTES))
    return path.read_text(encoding="utf-8").strip()
