"""Composes the process of the auth callout service: its logins, its metrics and health, and waiting for a server.

It outlives servers that are away, because agents cannot log in without it.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog
from nats.errors import Error as NatsError

from gpuledger.edge.authcallout.decide import TRIAL_NAME, LoginRules
from gpuledger.edge.authcallout.keys import CalloutKeys, read_keys
from gpuledger.edge.authcallout.service import AuthCallout
from gpuledger.edge.kube.client import KubeClient, open_client
from gpuledger.ledger.client import is_refusal
from gpuledger.ledger.connect import NO_ANSWER, Connection, Denial, connected, permission_error, without_passwords
from gpuledger.ledger.credentials import login_text
from gpuledger.ledger.errors import LedgerUnavailableError
from gpuledger.ledger.permissions import CALLOUT_ACCOUNT, CALLOUT_USER
from gpuledger.runtime.backoff import Backoff, Retries, system_jitter
from gpuledger.runtime.clock import system_clock
from gpuledger.runtime.settings import CalloutSettings, NatsIdentity
from gpuledger.runtime.telemetry_http import Health, serving

RETRY: Final = Backoff(first_s=0.2, max_s=10.0)
NAME: Final = "auth callout"
SUBSCRIBED_TIMEOUT_S: Final = 10
TRIAL_TIMEOUT_S: Final = 2.0
ADVICE: Final = (
    f"Log in as {CALLOUT_USER}, with the permissions that `gpuledger nats-config` gives it; "
    "docs/agent-credentials.md describes them."
)

log = structlog.get_logger("gpuledger.authcallout")


class CalloutProcess:
    """The process: it connects, listens, and connects again."""

    def __init__(self, settings: CalloutSettings) -> None:
        self._settings = settings
        self._serving: tuple[AuthCallout, Connection] | None = None
        self._trouble = "it has not logged in to NATS yet"

    def health(self) -> Health:
        """Whether servers can ask this process, and accept what it answers."""
        trouble = self._trouble
        if self._serving is not None:
            service, connection = self._serving
            trouble = service.trouble if connection.is_up else _away(connection)
        return Health(not trouble, {"ok": not trouble, **({"trouble": trouble} if trouble else {})})

    async def run(self, say: Callable[[str], None]) -> None:
        """Answer for as long as this runs.

        Raises:
            SettingsError: a key cannot be read.
            KubeConfigError: there is no cluster.
            ListenError: the address of the metrics cannot be listened on.
        """
        settings = self._settings
        keys = read_keys(settings)
        kubeconfig = Path(settings.kubeconfig) if settings.kubeconfig else None
        async with open_client(kubeconfig) as kube, serving(settings.metrics_listen, self.health) as url:
            say(f"The auth callout service logs in to NATS; metrics {url}/metrics, health {url}/healthz")
            retries = Retries(RETRY, system_jitter)
            while True:
                try:
                    await self._serve(kube, keys, retries, say)
                except (LedgerUnavailableError, NatsError) as error:
                    self._note(_advised(error, settings))
                await asyncio.sleep(retries.pause_s())

    async def _serve(self, kube: KubeClient, keys: CalloutKeys, retries: Retries, say: Callable[[str], None]) -> None:
        settings = self._settings
        user = "system:serviceaccount:{}:{}".format(*settings.service_account)
        rules = LoginRules(settings.audience, user)
        async with connected(settings.nats_url, name=NAME, identity=settings.nats_identity) as connection:
            over = _Over(connection)
            service = AuthCallout(connection, kube, rules, keys, system_clock)
            with connection.on_denial(over.on_denial), connection.on_break(over.on_break):
                async with service.listening():
                    # The library's ping may overtake what was sent before it, a second one may not.
                    await connection.client.flush(SUBSCRIBED_TIMEOUT_S)
                    await connection.client.flush(SUBSCRIBED_TIMEOUT_S)
                    over.check()
                    await _try_to_enter(settings)
                    say(_up_text(connection, keys, user))
                    self._serving = service, connection
                    retries.reset()
                    try:
                        await over.wait()
                    finally:
                        self._serving, self._trouble = None, _away(connection)

    def _note(self, trouble: str) -> None:
        """Log a trouble once, and not with every attempt."""
        if trouble != self._trouble:
            log.warning("callout.away", error=trouble)
        self._trouble = trouble


class _Trial(Connection):
    """A connection that is to be refused, of which nobody needs to read."""

    def _log_once(self, text: str) -> None:
        pass


async def _try_to_enter(settings: CalloutSettings) -> None:
    """Have the server ask about a client without a token: a key that is not the server's shows before agents come."""
    address = without_passwords(settings.nats_url)
    trial = _Trial(address, NatsIdentity(ca=settings.nats_identity.ca))
    try:
        await trial.open([one.strip() for one in address.split(",")], TRIAL_NAME, TRIAL_TIMEOUT_S, repeat=False)
    except LedgerUnavailableError:
        return  # as it has to be
    finally:
        await trial.close()
    log.warning(
        "callout.open", message=f"NATS at {address} lets in whoever comes, and does not ask about them. {ADVICE}"
    )


def _away(connection: Connection) -> str:
    return f"NATS at {connection.address} is away ({connection.last_error or 'it has closed the connection'})"


def _up_text(connection: Connection, keys: CalloutKeys, user: str) -> str:
    placed = "" if keys.account is None else f", and users of the account {keys.account} as {keys.users.public}"
    sealed = "" if keys.box is None else f"; its xkey is {keys.box.public}"
    return (
        f"The auth callout service is up: NATS at {connection.address} asks it about tokens of {user}; it signs "
        f"answers as the issuer {keys.issuer.public}{placed}{sealed}"
    )


def _advised(error: Exception, settings: CalloutSettings) -> str:
    """What is wrong with the server, or with our login."""
    text = str(error)
    if not isinstance(error, LedgerUnavailableError) or not (is_refusal(text) or NO_ANSWER in text):
        return text
    login, address = login_text(settings.nats_identity, settings.nats_url), without_passwords(settings.nats_url)
    advice = (
        f"Give it the password or key that the server has for {CALLOUT_USER} in the account {CALLOUT_ACCOUNT}, and "
        "name that user in the server's auth_users"
    )
    if is_refusal(text):
        return (
            f"NATS at {address} does not let the auth callout service in, which logs in as {login}. {advice}. ({text})"
        )
    return f"{text} If the server runs, it does not know {login}, and asks this very service about it. {advice}."


class _Over:
    """Whether a connection cannot serve any more: it was closed for good, or may not listen."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._denial: Denial | None = None
        self._changed = asyncio.Event()

    def on_denial(self, denial: Denial) -> None:
        if denial.kind == "subscription":
            self._denial = denial
            self._changed.set()

    def on_break(self) -> None:
        if self._connection.client.is_closed:
            self._changed.set()

    def check(self) -> None:
        """Raise PermissionDeniedError where the server does not let us listen."""
        if self._denial is not None:
            raise permission_error(self._connection.address, self._denial, ADVICE)

    async def wait(self) -> None:
        """Return when it was closed, or raise as `check` does."""
        await self._changed.wait()
        self.check()
