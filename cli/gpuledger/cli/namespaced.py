"""Names of objects in a namespace, as people type them: NAMESPACE/NAME, or a name beside `-n`."""

from typing import Final

from gpuledger.cli.errors import CliError, ExitCode

DEFAULT_NAMESPACE: Final = "default"
POD_KINDS: Final = ("pod", "pods")


def full_name(name: str, namespace: str | None, *kinds: str) -> str:
    """`namespace/name`; with a namespace beside it, the name may be as `kubectl get -o name` writes it.

    Raises:
        CliError: it is no name, or in another namespace.
    """
    kind, _, bare = name.partition("/")
    if namespace is not None and kind in kinds and kind != namespace:
        name = bare
    parts = name.split("/")
    if not all(parts) or len(parts) > 2:
        raise CliError(f"{name!r} is no name", "Write NAMESPACE/NAME", ExitCode.USAGE)
    if len(parts) == 1:
        return f"{namespace or DEFAULT_NAMESPACE}/{name}"
    if namespace not in (None, parts[0]):
        hint = "Leave -n out, or name the same"
        raise CliError(f"{name!r} is in namespace {parts[0]}, not in {namespace}", hint, ExitCode.USAGE)
    return name
