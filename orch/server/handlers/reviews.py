"""Reviews: questions about access and identity, answered by the same authorizer as requests.

A review is created like an object and comes back filled in (201); nothing is stored. Its contents
are checked by `review_checks`; who may ask is decided by the request filter like everything else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import orjson
from aiohttp import web

from orch.component.process.clock import Now
from orch.server import turns
from orch.server.asking import answered
from orch.server.authz.authorizer import Authorizer
from orch.server.handlers import review_checks
from orch.server.handlers.call import Call, read_object
from orch.server.objects import metadata, options, validation
from orch.server.objects.document import Document
from orch.server.request.attributes import RequestInfo
from orch.server.storage.base import Stored
from orch.wire import times
from orch.wire.errors import Cause, bad_request
from orch.wire.records import aliases
from orch.wire.records.authentication import (
    Identity,
    SelfSubjectReviewStatus,
    TokenReview,
    TokenReviewStatus,
    user_info,
)
from orch.wire.records.authorization import (
    LocalSubjectAccessReview,
    SelfSubjectAccessReview,
    SelfSubjectRulesReview,
    SubjectAccessReview,
    SubjectAccessReviewSpec,
    SubjectRulesReviewStatus,
)
from orch.wire.records.kinds import (
    LOCAL_ACCESS_REVIEWS,
    SELF_ACCESS_REVIEWS,
    SELF_REVIEWS,
    SELF_RULES_REVIEWS,
    SUBJECT_ACCESS_REVIEWS,
    TOKEN_REVIEWS,
)

Handler = Callable[[Call], Awaitable[web.StreamResponse]]
# The call, its body, and the body's record → the status, as JSON data.
Answer = Callable[[Call, Document, Any], Awaitable[dict[str, Any]]]
# A token and audiences (none: this server) → the status of its review.
TokenReviewer = Callable[[str, Sequence[str]], Awaitable[TokenReviewStatus]]


@dataclass(frozen=True, slots=True)
class Reviews:
    """`handlers` are the connectors of all reviews."""

    authorizer: Authorizer
    review_token: TokenReviewer
    now: Now

    def handlers(self) -> Mapping[tuple[str, str], Handler]:
        """By qualified name and subresource."""
        handlers: Mapping[str, Answer] = {
            SUBJECT_ACCESS_REVIEWS.qualified: self._access,
            LOCAL_ACCESS_REVIEWS.qualified: self._access,
            SELF_ACCESS_REVIEWS.qualified: self._access,
            SELF_RULES_REVIEWS.qualified: self._self_rules,
            TOKEN_REVIEWS.qualified: self._token,
            SELF_REVIEWS.qualified: self._self,
        }
        return {(name, ""): self._answering(handle) for name, handle in handlers.items()}

    def _answering(self, handle: Answer) -> Handler:
        """Read the review, fill in its status, send it back."""

        async def respond(call: Call) -> web.Response:
            wanted = options.parse_write_options(call.request.query)
            document, warnings = await read_object(call, wanted)
            metadata.fit_to_endpoint(call.strategy.resource, call.info.namespace, document)
            check = partial(validation.check_shape, call.strategy, document)
            record = await turns.compute(check)
            document["status"] = await handle(call, document, record)
            stored = Stored("", 0, orjson.dumps(document))
            rendering = call.rendering(self.now())
            return call.answer_object(rendering, stored, status=201, warnings=warnings)

        return respond

    async def _access(
        self,
        call: Call,
        document: Document,
        review: SelfSubjectAccessReview | SubjectAccessReview | LocalSubjectAccessReview,
    ) -> dict[str, Any]:
        """A self review is about its caller; a local one about its namespace only."""
        spec, sent = review.spec, document["metadata"]
        identity, is_local = call.identity, isinstance(review, LocalSubjectAccessReview)
        allowed = ("namespace",) if is_local else ()
        found = [*review_checks.metadata_causes(sent, allowed=allowed)]
        found += await turns.compute(partial(list, review_checks.attribute_causes(spec)))
        if isinstance(spec, SubjectAccessReviewSpec):
            found += review_checks.subject_causes(spec)
            extra = {key: tuple(values) for key, values in spec.extra.items()}
            identity = Identity(spec.user, tuple(spec.groups), spec.uid, extra)
        if is_local:
            # Only requests under an aliased group know a namespace by its other name.
            name = sent["namespace"]
            known_as = aliases.names_of_namespace(name) if call.info.alias else (name,)
            found += review_checks.local_causes(spec, known_as)
        _require(call, found)
        info, note = await turns.compute(partial(review_checks.request_of, spec))
        return await answered(partial(self._status, identity, info, note))

    async def _self_rules(
        self, call: Call, document: Document, review: SelfSubjectRulesReview
    ) -> dict[str, Any]:
        namespace = review.spec.namespace
        if not namespace:
            raise bad_request("no namespace on request")
        rules = self.authorizer.rules(call.identity, namespace)
        document["spec"] = {}
        status = SubjectRulesReviewStatus(
            resourceRules=list(rules.resources),
            nonResourceRules=list(rules.paths),
            incomplete=rules.incomplete,
            evaluationError=", ".join(rules.errors) or None,
        )
        return status.to_wire()

    async def _token(self, call: Call, document: Document, review: TokenReview) -> dict[str, Any]:
        spec = review.spec
        _require(call, review_checks.metadata_causes(document["metadata"]))
        if not spec.token:
            raise bad_request("token is required for TokenReview in authentication")
        return (await self.review_token(spec.token, spec.audiences)).to_wire()

    async def _self(self, call: Call, document: Document, _review: Any) -> dict[str, Any]:
        document["metadata"] = {"creationTimestamp": times.format_time(self.now())}
        return SelfSubjectReviewStatus(userInfo=user_info(call.identity)).to_wire()

    def _status(self, identity: Identity, info: RequestInfo, note: str) -> dict[str, Any]:
        """A `SubjectAccessReviewStatus`, built as JSON data directly, since these are frequent."""
        decision = self.authorizer.decide(identity, info)
        status: dict[str, Any] = {"allowed": decision.allowed}
        if decision.denied:
            status["denied"] = True
        if decision.reason:
            status["reason"] = decision.reason
        if note:
            status["evaluationError"] = note
        return status


def _require(call: Call, found: Iterable[Cause]) -> None:
    """ApiError 422 with the causes found, if any; a review has no name."""
    listed = tuple(found)
    if listed:
        raise validation.refusal(call.strategy, "", listed)
