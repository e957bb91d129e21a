"""Who may report health over TCP, and about which node. Pure.

Who reports is what the API server says about a token, or what a certificate says that our authority signed; never what
a request says. A reporter reports about its own node, unless the settings make it one for the whole cluster.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from gpuledger.edge.gateway.checked_pods import CheckedPod
from gpuledger.edge.kube.schema.object_names import dns_subdomain_problem
from gpuledger.edge.kube.token_review import InvalidToken, TokenIdentity, shown
from gpuledger.events.payload import NAME_LENGTH_MAX
from gpuledger.healthreports.errors import InvalidReportError, ReportDeniedError, UnauthenticatedError
from gpuledger.runtime.gateway_settings import CERTIFICATES, CLUSTER, CLUSTER_REPORTERS, REPORTERS, Account

NODE_USER: Final = "system:node:"
"""How the common name of a node's client certificate begins, as Kubernetes signs it for kubelets."""

NODE_GROUP: Final = "system:nodes"
"""The organization in it."""

BEARER: Final = "Bearer "

TOKEN_CHARS_MAX: Final = 16 * 1024


class Reporter(NamedTuple):
    """Who reports, as events name it, and its own node; None: it reports about every node and has to name one.

    `checked` is the pod where only its preflight checks may report; None: it is a health monitor's.
    """

    name: str
    node: str | None
    checked: CheckedPod | None = None


class CertificateNames(NamedTuple):
    """The names in a client certificate whose chain was verified: of its subject, and DNS names."""

    common_name: str
    organizations: tuple[str, ...]
    dns: tuple[str, ...]


class TokenRules(NamedTuple):
    """For which audience tokens are, and whose count: accounts, where a name `*` is every account of a namespace.

    In the namespaces of `preflight` the preflight checks of every pod may report.
    """

    audience: str
    reporters: frozenset[Account]
    cluster_reporters: frozenset[Account]
    preflight: frozenset[str] = frozenset()


def bearer_token(metadata: Mapping[str, str | bytes]) -> str:
    """The token in the metadata of a call.

    Raises:
        UnauthenticatedError: there is none.
    """
    value = metadata.get("authorization", "")
    text = value.decode("ascii", "replace") if isinstance(value, bytes) else value
    token = text[len(BEARER) :].strip() if text[: len(BEARER)].lower() == BEARER.lower() else ""
    if not token or len(token) > TOKEN_CHARS_MAX or not token.isascii() or not token.isprintable():
        raise UnauthenticatedError(
            "The call has no token. Send the metadata `authorization: Bearer TOKEN` with a token of the pod's service "
            "account, or report with a client certificate at the address that takes these."
        )
    return token


def reporter_of_token(found: TokenIdentity | InvalidToken, rules: TokenRules) -> Reporter:
    """Who the holder of a reviewed token is.

    Raises:
        UnauthenticatedError: the token identifies nobody.
        ReportDeniedError: it is of somebody who may not report, or bound to no node.
    """
    if isinstance(found, InvalidToken):
        raise UnauthenticatedError(
            f"Nobody can tell who reports: {found.message}. Mount a projected serviceAccountToken of the audience "
            f"{rules.audience}, and send it as it is at the moment."
        )
    account = found.account
    if account is None:
        raise ReportDeniedError(f"{shown(found.user)} is no service account, and only these report with a token.")
    pod = account[0] if found.pod is None else f"{account[0]}/{found.pod}"
    if _is_in(rules.cluster_reporters, account):
        return Reporter(pod[:NAME_LENGTH_MAX], None)
    if not _is_in(rules.reporters, account):
        if account[0] in rules.preflight and found.pod is not None and found.node is not None and found.pod_uid:
            name = pod[:NAME_LENGTH_MAX]
            return Reporter(name, found.node, CheckedPod(pod, found.pod_uid, found.node))
        raise ReportDeniedError(
            f"The service account {account[0]}/{account[1]} may not report health. If it should, add it, or its "
            f"namespace, to {REPORTERS} of the gateway (chart: healthGateway.reporters). Pods of tenants may not."
        )
    if found.node is None:
        raise ReportDeniedError(
            "The token is bound to no node, so it cannot say about which one it may report. Use a projected token of "
            f"a pod (Kubernetes 1.30 or newer), or add the account to {CLUSTER_REPORTERS} "
            "(chart: healthGateway.clusterReporters)."
        )
    return Reporter(pod[:NAME_LENGTH_MAX], found.node)


def reporter_of_certificate(names: CertificateNames, mapping: Mapping[str, str]) -> Reporter:
    """Who shows a client certificate; `mapping` has the node by a name in it, or that it is for the whole cluster.

    Raises:
        ReportDeniedError: it names no node, and is not in the mapping.
    """
    for name in (names.common_name, *names.dns):
        if name in mapping:
            return Reporter(name[:NAME_LENGTH_MAX], None if mapping[name] == CLUSTER else mapping[name])
    node = names.common_name.removeprefix(NODE_USER)
    is_node = names.common_name.startswith(NODE_USER) and NODE_GROUP in names.organizations
    if is_node and not dns_subdomain_problem(node):
        return Reporter(names.common_name[:NAME_LENGTH_MAX], node)
    raise ReportDeniedError(
        f"The client certificate of {shown(names.common_name)!r} names no node. Use one with the common name "
        f"{NODE_USER}NODE and the organization {NODE_GROUP}, as Kubernetes signs it for nodes, or add a name in it to "
        f"{CERTIFICATES} of the gateway (chart: healthGateway.certificates)."
    )


def node_of(node_name: str, place: str, reporter: Reporter) -> str:
    """The node that an event is about.

    Raises:
        ReportDeniedError: the reporter may not report about it.
        InvalidReportError: the event names none, or what cannot be one.
    """
    if reporter.node is not None:
        if node_name in ("", reporter.node):
            return reporter.node
        raise ReportDeniedError(
            f"{place}.nodeName is {shown(node_name)[:80]!r}, but {reporter.name} may report about its own node alone, "
            f"{reporter.node!r}. Report from that node, or add the reporter to {CLUSTER_REPORTERS} or {CERTIFICATES} "
            "of the gateway."
        )
    if not node_name:
        raise InvalidReportError(
            f"{place}.nodeName: it is empty; {reporter.name} reports about every node, and has to name one."
        )
    if dns_subdomain_problem(node_name):
        raise InvalidReportError(f"{place}.nodeName: {shown(node_name)[:80]!r} is no name of a node.")
    return node_name


def _is_in(accounts: frozenset[Account], account: Account) -> bool:
    return account in accounts or (account[0], "*") in accounts
