"""Calls admission webhooks over HTTPS before an object is stored.

Mutating webhooks run one after another, each on the result of those before it; validating ones run together. A webhook
that fails to answer fails the request or is ignored, as its failure policy says. The size, the uid and the form of
each answer are checked.
"""

import asyncio
import base64
import binascii
import ssl
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import aiohttp
import orjson
from yarl import URL

from gpuledger.edge.kube.schema.causes import Object
from gpuledger.local.kubeapi.admission_matching import NamespaceLabels
from gpuledger.local.kubeapi.admission_request import KindVersion, Question, request_of
from gpuledger.local.kubeapi.errors import ApiError, bad_request
from gpuledger.local.kubeapi.patches import json_patch
from gpuledger.local.kubeapi.webhook_matching import hooks_of, matched_review, reinvocations
from gpuledger.runtime.clock import NewId

TIMEOUT_S = 10
"""The default timeout."""

TIMEOUT_MAX_S = 30
ANSWER_MAX_BYTES = 3 * 1024 * 1024
CALLS_MAX = 16
"""The number of concurrent calls to validating webhooks."""

CONTEXTS_MAX = 64
REVIEW_VERSION = "admission.k8s.io/v1"
SERVICE_PORT = 443
_SIDE_EFFECT_FREE = frozenset({"None", "NoneOnDryRun"})

Resolve = Callable[[str, str, int], tuple[str, int] | None]
"""Resolves a service (namespace, name, port) to host and port; None if it does not exist."""


class WebhookError(Exception):
    """A webhook could not be called, or its answer is invalid."""


class Answer(NamedTuple):
    """The answer of a webhook."""

    is_allowed: bool
    status: Object
    patch: list[Object] | None
    warnings: list[str]


class Webhooks:
    """Calls webhooks. The caller closes `session`."""

    def __init__(
        self, session: aiohttp.ClientSession, new_id: NewId, resolve: Resolve, namespace_labels: NamespaceLabels
    ) -> None:
        self._session = session
        self._new_id = new_id
        self._resolve = resolve
        self._namespace_labels = namespace_labels
        self._calls = asyncio.Semaphore(CALLS_MAX)

    async def mutate(
        self,
        configurations: Iterable[Object],
        question: Question,
        obj: Object | None,
        old: Object | None,
        warnings: list[str],
    ) -> Object | None:
        """The object after all mutating webhooks; the argument stays unchanged.

        Raises:
            ApiError: a webhook refuses, or fails and fails closed.
        """
        hooks, ran, again = hooks_of(configurations), list[int](), set[int]()
        for index, hook in enumerate(hooks):
            was_called, changed = await self._mutated(hook, question, obj, old, warnings)
            if changed != obj:
                again.update(reinvocations(hooks, ran, index))
            obj = changed
            if was_called:
                ran.append(index)
        for index in sorted(again):
            _, obj = await self._mutated(hooks[index], question, obj, old, warnings)
        return obj

    async def validate(
        self,
        configurations: Iterable[Object],
        question: Question,
        obj: Object | None,
        old: Object | None,
        warnings: list[str],
    ) -> None:
        """Call validating webhooks; the first refusal in their order is the error.

        Raises:
            ApiError: a webhook refuses, or fails and fails closed.
        """
        hooks = hooks_of(configurations)
        calls = (self._validated(hook, question, obj, old) for hook in hooks)
        results = await asyncio.gather(*calls, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
            warnings.extend(result)

    async def _validated(self, hook: Object, question: Question, obj: Object | None, old: Object | None) -> list[str]:
        review = matched_review(hook, question, obj, old, self._namespace_labels)
        if review is None:
            return []
        async with self._calls:
            answer = await self._call(hook, review, obj, old)
        return answer.warnings if answer else []

    async def _mutated(
        self, hook: Object, question: Question, obj: Object | None, old: Object | None, warnings: list[str]
    ) -> tuple[bool, Object | None]:
        review = matched_review(hook, question, obj, old, self._namespace_labels)
        if review is None:
            return False, obj
        answer = await self._call(hook, review, obj, old)
        if answer is None:
            return True, obj
        warnings.extend(answer.warnings)
        if not answer.patch or obj is None:
            return True, obj
        return True, _patched(obj, answer.patch, review.version)

    async def _call(self, hook: Object, question: Question, obj: Object | None, old: Object | None) -> Answer | None:
        name = hook["name"]
        if question.dry_run and hook.get("sideEffects") not in _SIDE_EFFECT_FREE:
            raise bad_request(f'admission webhook "{name}" does not support dry run')
        uid = self._new_id()
        review = {
            "kind": "AdmissionReview",
            "apiVersion": REVIEW_VERSION,
            "request": request_of(question, uid, obj, old),
        }
        try:
            answer = _read(await self._post(hook, review), uid)
        except (WebhookError, aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            if hook.get("failurePolicy") == "Ignore":
                return None
            raise _uncalled(name, error) from error
        if not answer.is_allowed:
            raise refusal(name, answer.status)
        return answer

    async def _post(self, hook: Object, review: Object) -> bytes:
        config = hook.get("clientConfig") or {}
        timeout_s = min(hook.get("timeoutSeconds") or TIMEOUT_S, TIMEOUT_MAX_S)
        url, server_name = self._place(config)
        async with self._session.post(
            url.update_query(timeout=f"{timeout_s}s"),
            data=orjson.dumps(review),
            headers={"Content-Type": "application/json", "Accept": "application/json"},
            timeout=aiohttp.ClientTimeout(total=timeout_s),
            ssl=_context(config.get("caBundle") or ""),
            server_hostname=server_name,
            allow_redirects=False,
        ) as response:
            body = await _bounded(response)
            if response.status != 200:
                raise WebhookError(f"the server answered {response.status}")
            return body

    def _place(self, config: Object) -> tuple[URL, str | None]:
        if config.get("url"):
            return URL(config["url"]), None
        service = config.get("service")
        if not service:
            raise WebhookError("clientConfig has neither a url nor a service")
        name, namespace = service.get("name", ""), service.get("namespace", "")
        found = self._resolve(namespace, name, service.get("port") or SERVICE_PORT)
        if found is None:
            raise WebhookError(f'service "{name}" not found in namespace "{namespace}"')
        path = "/" + (service.get("path") or "").lstrip("/")
        return URL.build(scheme="https", host=found[0], port=found[1], path=path), f"{name}.{namespace}.svc"


def refusal(name: str, status: Object) -> ApiError:
    """The error for a webhook's refusal: the webhook's own status, with its name before the message."""
    message, reason = status.get("message") or "", status.get("reason") or ""
    tail = f": {message or reason}" if message or reason else " without explanation"
    code = status.get("code") or 0
    text = f'admission webhook "{name}" denied the request{tail}'
    return ApiError(max(code, 400), reason, text, status.get("details"))


def _uncalled(name: str, error: Exception) -> ApiError:
    what = "context deadline exceeded" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
    message = f'failed calling webhook "{name}": failed to call webhook: {what}'
    return _internal(message)


def _internal(message: str) -> ApiError:
    details = {"causes": [{"message": message}]}
    return ApiError(500, "InternalError", f"Internal error occurred: {message}", details)


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > ANSWER_MAX_BYTES:
            raise WebhookError(f"its answer has more than {ANSWER_MAX_BYTES} bytes")
    return bytes(body)


def _read(body: bytes, uid: str) -> Answer:
    try:
        review = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise WebhookError(f"its answer is no JSON: {error}") from error
    if not isinstance(review, dict) or not isinstance(response := review.get("response"), dict):
        raise WebhookError("webhook response was absent")
    if (review.get("apiVersion"), review.get("kind")) != (REVIEW_VERSION, "AdmissionReview"):
        raise WebhookError(f"expected webhook response of {REVIEW_VERSION}, Kind=AdmissionReview")
    if response.get("uid") != uid:
        raise WebhookError(f'expected response.uid="{uid}", got "{response.get("uid")}"')
    warnings = [str(text) for text in response.get("warnings") or ()]
    return Answer(bool(response.get("allowed")), response.get("status") or {}, _patch(response), warnings)


def _patch(response: Object) -> list[Object] | None:
    encoded = response.get("patch")
    if not encoded:
        return None
    if response.get("patchType") != "JSONPatch":
        raise WebhookError("webhook returned response.patch but not response.patchType JSONPatch")
    try:
        operations: Any = orjson.loads(base64.b64decode(encoded, validate=True))
    except (binascii.Error, TypeError, ValueError) as error:
        raise WebhookError(f"its patch cannot be read: {error}") from error
    if not isinstance(operations, list):
        raise WebhookError("its patch is no list")
    return operations


def _patched(obj: Object, patch: list[Object], version: KindVersion) -> Object:
    typed = {**obj, "kind": obj.get("kind") or version.kind, "apiVersion": version.api_version}
    try:
        changed = json_patch(typed, patch)
    except ApiError as error:
        raise _internal(error.message) from error
    for name in ("kind", "apiVersion"):
        if name in obj:
            changed[name] = obj[name]
        else:
            changed.pop(name, None)
    return changed


@lru_cache(maxsize=CONTEXTS_MAX)
def _context(bundle: str) -> ssl.SSLContext:
    if not bundle:
        return ssl.create_default_context()
    try:
        return ssl.create_default_context(cadata=base64.b64decode(bundle, validate=True).decode("ascii"))
    except (binascii.Error, UnicodeDecodeError, ssl.SSLError) as error:
        raise WebhookError(f"its caBundle holds no certificates: {error}") from error
