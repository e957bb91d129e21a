"""Which tests run on which API server, and how pytest reports those that do not run.

A test that uses the fixture `kube` runs twice: `[embedded]`, and `[real]` where there is one. Both ids
are markers as well, so `-m real` selects. `@pytest.mark.embedded_only("why")` keeps a test, or a row of one, off the
real one, visibly: `pytest -rs` shows what did not run there and why.
"""

from collections.abc import Iterable

import pytest

from support.real_kube import ASSETS, assets

KIND = "kube_kind"
EMBEDDED, REAL = "embedded", "real"
MARKERS = (
    f"{EMBEDDED}: runs on the embedded API server",
    f"{REAL}: runs on a real kube-apiserver and etcd, where {ASSETS} names the folder with both",
    "embedded_only(reason): cannot run on a real API server, and why",
)
NOT_RUN = "not run on a real API server: "


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Have a test run on both kinds, if it needs an API server or has a reason to run on one alone."""
    if KIND not in metafunc.fixturenames:
        if metafunc.definition.get_closest_marker("embedded_only") is None:
            return
        metafunc.fixturenames.append(KIND)
    kinds = [pytest.param(kind, marks=getattr(pytest.mark, kind)) for kind in (EMBEDDED, REAL)]
    metafunc.parametrize(KIND, kinds)


def skip(items: Iterable[pytest.Item]) -> None:
    """Mark what is not run, before any fixture is set up for it."""
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            kind = item.callspec.params.get(KIND)
            if kind == REAL and (reason := _reason(item)):
                item.add_marker(pytest.mark.skip(reason=NOT_RUN + reason))


def _reason(item: pytest.Function) -> str | None:
    marker = item.get_closest_marker("embedded_only")
    if marker is not None:
        return f"embedded only, {marker.args[0]}"
    return None if assets() else f"{ASSETS} is not set"
