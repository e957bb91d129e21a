"""How the container of a check reaches who takes its report: the agent's socket, or the health gateway over TCP. Pure.

Of the node a pod gets one folder, which holds the socket and nothing else. Where Pod Security refuses folders of nodes,
the pod gets a token of its own account for the gateway, and the authority that signs the gateway's certificate: as an
annotation of the pod, because nothing else that the pod could mount is in its namespace.
"""

from pathlib import PurePosixPath
from typing import Any, Final, NamedTuple

from gpuledger.api.preflight import (
    ANNOTATION_AUTHORITY,
    AUTHORITY_PATH,
    SOCKET_FOLDER,
    SOCKET_NAME,
    TOKEN_PATH,
    Variable,
)
from gpuledger.edge.preflight.configuration import Connector

VOLUME: Final = "gpuledger-health"
TOKEN_LIFE_S: Final = 3600
READABLE: Final = 0o644

REFUSING_LEVELS: Final = frozenset({"baseline", "restricted"})
"""Levels of Pod Security that refuse folders of the node."""


class Connection(NamedTuple):
    """What reaches the receiver: a volume and its mount, variables, and annotations that the volume reads."""

    volume: dict[str, Any]
    mount: dict[str, Any]
    env: tuple[tuple[str, str], ...]
    annotations: tuple[tuple[str, str], ...] = ()


def connection_of(connector: Connector, pod_security: str | None, authority: str) -> Connection | None:
    """The connection of a pod; None where there is none that the namespace's level of Pod Security allows.

    A level of None: nobody could find it out; then the one that every level allows comes first.
    """
    refuses, may_refuse = pod_security in REFUSING_LEVELS, pod_security in {*REFUSING_LEVELS, None}
    if connector.mode == "tcp" or (connector.mode == "auto" and may_refuse and connector.target):
        return _over_tcp(connector, authority)
    return None if refuses else _over_socket(connector)


def _over_socket(connector: Connector) -> Connection:
    folder = {"path": connector.socket_directory, "type": "DirectoryOrCreate"}
    return Connection(
        {"name": VOLUME, "hostPath": folder},
        {"name": VOLUME, "mountPath": SOCKET_FOLDER, "readOnly": True},
        ((Variable.SOCKET, f"unix://{SOCKET_FOLDER}/{SOCKET_NAME}"),),
    )


def _over_tcp(connector: Connector, authority: str) -> Connection:
    token, signer = PurePosixPath(TOKEN_PATH), PurePosixPath(AUTHORITY_PATH)
    sources: list[dict[str, Any]] = [
        {
            "serviceAccountToken": {
                "audience": connector.audience,
                "expirationSeconds": TOKEN_LIFE_S,
                "path": token.name,
            }
        }
    ]
    env = [(Variable.TARGET, connector.target), (Variable.TARGET_TOKEN_FILE, TOKEN_PATH)]
    if authority:
        field = {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{ANNOTATION_AUTHORITY}']"}
        sources.append({"downwardAPI": {"items": [{"path": signer.name, "fieldRef": field}]}})
        env.append((Variable.TARGET_CA_FILE, AUTHORITY_PATH))
    return Connection(
        {"name": VOLUME, "projected": {"sources": sources, "defaultMode": READABLE}},
        {"name": VOLUME, "mountPath": str(token.parent), "readOnly": True},
        tuple(env),
        ((ANNOTATION_AUTHORITY, authority),) if authority else (),
    )
