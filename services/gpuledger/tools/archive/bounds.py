"""What a query on an archive may take. Apart from the query itself, so that no command waits for DuckDB's import."""

from typing import Final, NamedTuple

from gpuledger.db.readonly import STATEMENT_TIMEOUT_S

ARCHIVE_MEMORY_MIB_MAX: Final = 1_024
"""How much memory DuckDB may take for a query, unless it is given another bound."""

ARCHIVE_SCRATCH_MIB_MAX: Final = 4_096
"""How much room on the disk it may take for what does not fit there."""


class ArchiveBounds(NamedTuple):
    """How long a query may run, and how much memory and room on the disk it may take."""

    timeout_s: int = STATEMENT_TIMEOUT_S
    memory_mib_max: int = ARCHIVE_MEMORY_MIB_MAX
    scratch_mib_max: int = ARCHIVE_SCRATCH_MIB_MAX


BOUNDS: Final = ArchiveBounds()
"""The bounds of a query that is given none."""
