"""`serviceaccounts/token`: a token for a service account, made on request and not stored."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import orjson
from aiohttp import web
from pydantic import ValidationError

from orch.server.authn.tokens import Bound
from orch.server.authz.authorizer import Authorizer
from orch.server.flow.control import charge, limit_rate, size_of
from orch.server.handlers.call import Call, read_document
from orch.server.objects import metadata, options, validation
from orch.server.objects.backend import Backend
from orch.server.objects.document import Attempt, Document, decode, key_of
from orch.server.request.attributes import RequestInfo
from orch.server.storage.base import Stored
from orch.wire import causes, errors, raw, times
from orch.wire.errors import ApiError, Cause, bad_request, invalid
from orch.wire.names import AUTHENTICATION_GROUP
from orch.wire.records.authentication import TokenRequest, TokenRequestSpec, node_name_of
from orch.wire.records.kinds import NODES, PODS, SECRETS, SERVICE_ACCOUNTS, Resource

if TYPE_CHECKING:
    from orch.server.authn.service_account_tokens import AccountTokens

AUDIENCE_VERB = "request-serviceaccounts-token-audience"
DEFAULT_S, MIN_S, MAX_S = 3600, 600, 2**32
AUDIENCES_MAX = 8 * 1024  # bytes of all, as the token has them: half of what is read of a token
# The second is compiled into clients of the reference; answered under the name they use.
_API_VERSIONS = (f"{AUTHENTICATION_GROUP}/v1", "authentication.k8s.io/v1")
_BINDABLE: dict[str, Resource] = {"Pod": PODS, "Secret": SECRETS, "Node": NODES}


class TokenRequests:
    """`handle` is the connector of the subresource."""

    def __init__(
        self,
        backend: Backend,
        tokens: AccountTokens | None,
        audiences: tuple[str, ...],
        authorizer: Authorizer,
    ) -> None:
        self._authorizer = authorizer
        self._backend = backend
        self._tokens = tokens
        self._audiences = audiences

    async def handle(self, call: Call) -> web.Response:
        """ApiError 404, 409 when the bound object has another uid, 422, 503 without a key."""
        if call.info.verb != "create":
            raise web.HTTPMethodNotAllowed(call.request.method, ("POST",))
        wanted = options.parse_write_options(call.request.query)
        await limit_rate(lambda: call.request.content.total_bytes)  # to sign takes as long
        document = await read_document(call)
        request = _checked(document, call)
        kind = (document["apiVersion"], "TokenRequest")
        attempt = Attempt("CREATE", document, dry_run=wanted.dry_run, kind=kind)
        asked = await self._backend.ask_webhooks(call.target(), attempt)
        if asked is not None and asked is not document:
            document, request = asked, _checked(asked, call)
        account = _read(self._backend.find(call.target()))
        _complete(document["metadata"], account["metadata"], self._backend.now())
        bound = self._bound(account, request.spec, call.info.namespace)
        self._restrict(call, bound, request.spec)
        if self._tokens is None or not self._tokens.can_sign:
            raise errors.service_unavailable(
                "no tokens are issued: the server runs without --service-account-signing-key-file"
            )
        granted = self._granted(request.spec)
        document["spec"] = granted.to_wire()
        document["status"] = self._status(self._tokens, bound, granted, dry_run=wanted.dry_run)
        body = orjson.dumps(document)
        rendering = call.rendering(self._backend.now())
        return call.answer(rendering, body, status=201)

    def _granted(self, spec: TokenRequestSpec) -> TokenRequestSpec:
        """The spec with its defaults: clients derive from it when to request the next token."""
        return spec.model_copy(
            update={
                "audiences": spec.audiences or list(self._audiences),
                "expirationSeconds": spec.expirationSeconds or DEFAULT_S,
            }
        )

    def _status(
        self, tokens: AccountTokens, bound: Bound, spec: TokenRequestSpec, *, dry_run: bool
    ) -> Document:
        lifetime = timedelta(seconds=spec.expirationSeconds or DEFAULT_S)
        expires = times.format_time(self._backend.now() + lifetime)
        if dry_run:
            return {"token": "", "expirationTimestamp": expires}
        token = tokens.sign(bound, spec.audiences, lifetime)
        return {"token": token, "expirationTimestamp": expires}

    def _bound(self, account: Document, spec: TokenRequestSpec, namespace: str) -> Bound:
        own = account["metadata"]
        reference = spec.boundObjectRef
        if reference is None:
            return Bound(namespace, own["name"], own["uid"])
        resource = _BINDABLE[reference.kind or ""]
        name = reference.name or ""
        stored = self._backend.storage.get(key_of(resource, namespace, name))
        if stored is None:
            raise errors.not_found(resource.plural, name)
        target = _read(stored)
        uid = target["metadata"]["uid"]
        if reference.uid and reference.uid != uid:
            raise errors.conflict(
                resource.plural,
                name,
                f"the UID in the bound object reference ({reference.uid}) does not match the UID"
                f" in record ({uid})",
            )
        objects = [(resource.singular, target["metadata"]["name"], uid)]
        if resource is PODS:
            objects += self._pod_extras(target, own["name"])
        return Bound(namespace, own["name"], own["uid"], tuple(objects))

    def _pod_extras(self, pod: Document, account: str) -> Iterator[tuple[str, str, str]]:
        """The node a pod runs on; ApiError 400 when the pod runs as another account."""
        spec = pod.get("spec") or {}
        if (spec.get("serviceAccountName") or "default") != account:
            raise bad_request(
                f"cannot bind token for serviceaccount {account!r} to a pod of another account"
            )
        node = spec.get("nodeName") or ""
        stored = self._backend.storage.get(key_of(NODES, "", node)) if node else None
        if stored is not None:
            yield "node", node, decode(stored)["metadata"]["uid"]

    def _restrict(self, call: Call, bound: Bound, spec: TokenRequestSpec) -> None:
        """ApiError 403 when a node asks for a token that is not of its own pod, named with its uid,
        or for another audience than a volume of the pod, unless it has the right to that.
        """
        node = node_name_of(call.identity)
        if node is None:
            return
        kinds = {kind: name for kind, name, _ in bound.objects}
        reference = spec.boundObjectRef
        if "pod" not in kinds or kinds.get("node") != node or not (reference and reference.uid):
            raise _not_for_node(
                call,
                f'node "{node}" may only ask for tokens bound to a pod that is bound to it, with '
                "the uid of the pod",
            )
        stored = self._backend.storage.get(key_of(PODS, call.info.namespace, kinds["pod"]))
        shown = _audiences_of(decode(stored)) if stored is not None else set()
        for audience in spec.audiences or ("",):
            if audience not in shown and not self._may_ask(call, audience):
                why = f"audience {audience!r} not found in pod spec volume"
                raise _not_for_node(call, f'{why}, node "{node}" may not ask for it')

    def _may_ask(self, call: Call, audience: str) -> bool:
        """As the reference: by a rule whose resource is the audience, for this account."""
        asked = RequestInfo(
            verb=AUDIENCE_VERB,
            path="",
            is_resource=True,
            namespace=call.info.namespace,
            resource=audience,
            name=call.info.name,
        )
        return bool(audience) and self._authorizer.decide(call.identity, asked).allowed


def _read(stored: Stored) -> Document:
    """An object that the tenant may have made large, which takes of its rate."""
    charge(size_of(stored.data))
    return decode(stored)


def _not_for_node(call: Call, why: str) -> ApiError:
    return errors.forbidden(
        f'serviceaccounts "{call.info.name}" is forbidden: {why}',
        name=call.info.name,
        kind=SERVICE_ACCOUNTS.plural,
    )


def _audiences_of(pod: Document) -> set[str]:
    """Those that its volumes want tokens for; "" for this server."""
    return {
        raw.text(source, "serviceAccountToken", "audience")
        for volume in raw.records(pod, "spec", "volumes")
        for source in raw.records(volume, "projected", "sources")
        if source.get("serviceAccountToken") is not None
    }


def _checked(document: Document, call: Call) -> TokenRequest:
    """ApiError 400, 422."""
    request = _fitted(document, call)
    if found := tuple(_causes(request.spec)):
        raise invalid("TokenRequest", call.info.name, found, AUTHENTICATION_GROUP)
    return request


def _fitted(document: Document, call: Call) -> TokenRequest:
    """ApiError 400 unless it is a TokenRequest for this account."""
    sent = metadata.fit_to_kind("TokenRequest", _API_VERSIONS, document)
    metadata.fit_to_name(call.info.name, document)
    metadata.fit_to_namespace(call.info.namespace, sent)
    try:
        return TokenRequest.model_validate(document, strict=True)
    except ValidationError as error:
        problems = validation.shape_problems(error)
        raise bad_request(f"TokenRequest cannot be handled: {problems}") from None


def _complete(sent: Document, account: Document, now: datetime) -> None:
    """The metadata of the answer; ApiError 409 when the caller means another account."""
    if sent.get("uid") not in (None, "", account["uid"]):
        raise errors.conflict(
            SERVICE_ACCOUNTS.plural,
            account["name"],
            f"the UID in the token request ({sent['uid']}) does not match the UID of the service"
            f" account ({account['uid']})",
        )
    sent |= {"uid": account["uid"], "creationTimestamp": times.format_time(now)}


def _causes(spec: TokenRequestSpec) -> Iterator[Cause]:
    seconds = spec.expirationSeconds
    path = "spec.expirationSeconds"
    if seconds is not None and seconds < MIN_S:
        text = "may not specify a duration less than 10 minutes"
        yield causes.invalid_value(path, seconds, text)
    if seconds is not None and seconds > MAX_S:
        text = "may not specify a duration larger than 2^32 seconds"
        yield causes.invalid_value(path, seconds, text)
    if len(orjson.dumps(spec.audiences)) > AUDIENCES_MAX:
        text = f"may not have more than {AUDIENCES_MAX} bytes in all: nobody would read the token"
        yield causes.too_long("spec.audiences", text)
    reference = spec.boundObjectRef
    if reference is not None and reference.kind not in _BINDABLE:
        yield causes.not_supported(
            "spec.boundObjectRef.kind", reference.kind or "", tuple(_BINDABLE)
        )
