"""Which rendered configurations of a pool are kept (seed 004: `revisionHistory.limit`). Pure."""

from collections.abc import Container, Iterable

from gpuledger.domain.machineconfig.rows import RenderedConfigRow


def surplus(rendered: Iterable[RenderedConfigRow], limit: int, used: Container[str]) -> list[str]:
    """The names of a pool's rendered configurations that go, the oldest first.

    The newest `limit` stay, with 0 all of them; so do those in `used`: the pool's target, a pinned one, and those that
    nodes have or are to have.
    """
    if not limit:
        return []
    newest_first = sorted(rendered, key=lambda row: row.place, reverse=True)
    return [row.name for row in reversed(newest_first[limit:]) if row.name not in used]
