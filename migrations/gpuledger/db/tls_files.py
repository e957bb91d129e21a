"""The certificate files that libpq uses for a URL: those of the URL, of the environment, or at libpq's own places."""

from pathlib import Path
from typing import Final, NamedTuple

from psycopg import conninfo, pq

_FOLDER: Final = Path("~/.postgresql")
_AUTHORITIES_OF_THE_SYSTEM: Final = "system"


class TlsFiles(NamedTuple):
    """Files with our own certificate and with the authorities that we trust; None where there is none."""

    certificate: Path | None
    authorities: Path | None


def tls_files(url: str) -> TlsFiles:
    """The files for the connections to a database.

    Raises:
        psycopg.ProgrammingError: it is no URL of a database.
    """
    options = {one.keyword.decode(): one.val.decode() for one in pq.Conninfo.get_defaults() if one.val}
    options |= {name: str(value) for name, value in conninfo.conninfo_to_dict(url).items() if value}
    return TlsFiles(
        _file(options.get("sslcert") or str(_FOLDER / "postgresql.crt")),
        _file(options.get("sslrootcert") or str(_FOLDER / "root.crt")),
    )


def _file(name: str) -> Path | None:
    if name == _AUTHORITIES_OF_THE_SYSTEM:
        return None
    path = Path(name).expanduser()
    return path if path.is_file() else None
