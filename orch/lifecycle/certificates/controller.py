"""Approves what needs nobody's approval, issues what is approved, and removes old requests.

Runs as leader. A request is looked at when it changes, and again every few seconds while it waits:
for the node that it is about, or for a server that answers.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from orch.client.informer import Informer
from orch.client.resources import ApiClient
from orch.client.transport import TransportError
from orch.component import pki, signing_requests
from orch.component.pki import KeyPair
from orch.component.process.clock import Now
from orch.component.process.daemon import SetupError
from orch.component.process.loops import Periodic
from orch.component.process.once_log import OnceLog
from orch.component.signing_requests import SigningRequest
from orch.lifecycle.certificates import policy
from orch.wire import times
from orch.wire.errors import ApiError
from orch.wire.names import CERTIFICATES_GROUP, SIGNER_NODE_SERVING
from orch.wire.records.authentication import (
    APPROVED,
    DENIED,
    FAILED,
    CertificateSigningRequest,
    CertificateSigningRequestCondition,
)
from orch.wire.records.authorization import (
    ResourceAttributes,
    SubjectAccessReview,
    SubjectAccessReviewSpec,
)
from orch.wire.records.core import Node
from orch.wire.records.kinds import SIGNING_REQUESTS

log = logging.getLogger(__name__)

INTERVAL_S = 5.0
NEW_AT_ONCE = WAITING_AT_ONCE = 100  # in one step: each takes some milliseconds
DECIDED_KEPT = timedelta(hours=1)
PENDING_KEPT = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class SigningSettings:
    """The CA of clients and that of the nodes' servers, how long certificates last, and hosts that
    no node gets one for: those of the control plane, where clients would believe it.
    """

    ca: KeyPair
    serving_ca: KeyPair
    lifetime: timedelta
    control_plane: tuple[str, ...] = ()


class CertificateController:
    """`nodes` are those of the cluster, by name."""

    def __init__(
        self,
        client: ApiClient,
        settings: SigningSettings,
        nodes: Callable[[], Mapping[str, Node]],
        *,
        now: Now,
    ) -> None:
        self._client = client
        self._settings = settings
        self._nodes = nodes
        self._now = now
        self._left: dict[str, str] = {}  # to people: versions by name
        self._waits: dict[str, str] = {}  # likewise, looked at longest ago first
        self._hosts: policy.Hosts | None = None  # of this step
        self._loop = Periodic("certificates", self.step, interval_s=INTERVAL_S)
        self.informer = Informer(client, CertificateSigningRequest, on_change=self._loop.wake)
        self._outage = OnceLog(log)
        self._defects = OnceLog(log, logging.ERROR)  # by request
        self._waiting = OnceLog(log, logging.INFO)

    async def run(self) -> None:
        """Watch and decide for ever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.informer.run())
            await self.informer.wait_synced()
            tasks.create_task(self._loop.run())

    async def step(self) -> None:
        """Take requests one step further, those of all users in rotation: of the new ones, and
        of those that wait, which may be a thousand of each node.
        """
        failed = False
        known = dict(self.informer.objects())
        self._hosts = None
        self._waiting.retain(known)
        self._defects.retain(known)
        for name in (due := self._due(known)):
            try:
                await self._advance(known[name])
            except (ApiError, TransportError, SetupError) as error:
                if isinstance(error, ApiError) and error.code in (404, 409):
                    continue  # overtaken: the change will be seen
                failed = True
                text = "the request for a certificate %s waits: %s"
                self._outage.failed(text, name, error, cause=str(error))
            except Exception as error:  # the nodes are judged by the same program
                self._wait(known[name])
                text = "the request for a certificate %s cannot be worked on: a defect here"
                self._defects.failed(text, name, subject=name, error=error)
        for name, request in known.items():
            if (age := self._expired(request)) is not None:
                await self._remove(name, age)
        if not failed:
            self._outage.recovered("requests for certificates are worked on again")
            if len(due) >= NEW_AT_ONCE and any(name not in self._waits for name in due):
                self._loop.wake()  # there may be more

    def _due(self, known: Mapping[str, CertificateSigningRequest]) -> Sequence[str]:
        """The names of those to look at now."""

        def is_same(name: str, version: str) -> bool:
            return name in known and known[name].metadata.resourceVersion == version

        def user_of(name: str) -> str:
            return known[name].spec.username or ""

        self._left = {name: text for name, text in self._left.items() if is_same(name, text)}
        self._waits = {name: text for name, text in self._waits.items() if is_same(name, text)}
        new = [name for name in known if name not in self._left and name not in self._waits]
        waiting = policy.in_rotation(self._waits, user_of, WAITING_AT_ONCE)
        return [*policy.in_rotation(new, user_of, NEW_AT_ONCE), *waiting]

    async def _advance(self, request: CertificateSigningRequest) -> None:
        if request.signer not in policy.SIGNERS or _is_final(request):
            self._leave(request)
            return
        name, username = request.metadata.name, request.spec.username or ""
        try:
            asked = await asyncio.to_thread(signing_requests.read, request.pem)
        except ValueError as error:
            await self._fail(request, str(error))
            return
        usages = request.spec.usages or ()
        problem = policy.misfit(request.signer, asked, usages, username)
        if request.condition(APPROVED):
            if problem:
                await self._fail(request, problem)
            else:
                await self._issue(request, asked)
            return
        kind = "" if problem else policy.review_of(request.signer, asked, username)
        if not kind or not await self._may(request, kind):
            why = problem or "it needs somebody's approval"
            log.info(
                "the request for a certificate %s of %s is not approved by itself: %s;"
                " orchctl certificate approve %s", name, username, why, name,
            )  # fmt: skip
            self._leave(request)
        else:
            await self._approve(request, kind, asked)

    async def _approve(
        self, request: CertificateSigningRequest, kind: str, asked: SigningRequest
    ) -> None:
        name, nodes = request.metadata.name, self._nodes()
        if kind == policy.NODE_CLIENT and (why := policy.in_use(nodes.get(policy.node_of(asked)))):
            await self._decide(request, DENIED, "NodeInUse", why)
            log.warning("the request for a certificate %s is denied: %s", name, why)
            return
        if kind == policy.SELF_NODE_SERVER and (why := await self._foreign_host(asked, nodes)):
            self._wait(request)
            text = "the request for a certificate %s waits: %s; else orchctl certificate approve %s"
            self._waiting.failed(text, name, why, name, subject=name)
            return
        await self._decide(request, APPROVED, "AutoApproved", "a node asks for its certificate")
        text = "approved %s for %s, asked for by %s"
        log.info(text, kind, asked.common_name, request.spec.username)

    async def _foreign_host(self, asked: SigningRequest, nodes: Mapping[str, Node]) -> str:
        if self._hosts is None:
            self._hosts = await asyncio.to_thread(policy.hosts_of, dict(nodes))
        return policy.foreign_host(asked, self._hosts, self._settings.control_plane)

    async def _may(self, request: CertificateSigningRequest, kind: str) -> bool:
        """Whether the asker may have such a request approved at once."""
        spec = request.spec
        review = SubjectAccessReview(
            spec=SubjectAccessReviewSpec(
                user=spec.username or "",
                uid=spec.uid or "",
                groups=spec.groups or [],
                extra=spec.extra or {},
                resourceAuthorizationAttributes=ResourceAttributes(
                    verb="create",
                    group=CERTIFICATES_GROUP,
                    version="*",
                    resource=SIGNING_REQUESTS.plural,
                    subresource=kind,
                ),
            )
        )
        answer = await self._client.create(review)
        return bool(answer.status and answer.status.allowed)

    async def _issue(self, request: CertificateSigningRequest, asked: SigningRequest) -> None:
        settings, now = self._settings, self._now()
        serving = request.signer == SIGNER_NODE_SERVING
        wanted_s, most_s = request.spec.expirationSeconds, settings.lifetime.total_seconds()
        lifetime = timedelta(seconds=min(most_s, wanted_s or most_s))
        ca = settings.serving_ca if serving else settings.ca
        usages = request.spec.usages or ()
        try:
            pem = await asyncio.to_thread(pki.sign, ca, asked, usages, lifetime, now)
        except ValueError as error:  # such as a name that no certificate can have
            await self._fail(request, str(error))
            return
        issued = request.model_copy(deep=True)
        issued.status.certificate = base64.b64encode(pem).decode()
        await self._client.update(issued, subresource="status")
        log.info("issued the certificate %s for %s", request.metadata.name, asked.common_name)

    async def _fail(self, request: CertificateSigningRequest, why: str) -> None:
        """Approved or not, no certificate can be issued for it."""
        await self._decide(request, FAILED, "SignerValidationFailure", why, part="status")
        name = request.metadata.name
        log.warning("the request for a certificate %s cannot be granted: %s", name, why)

    async def _decide(
        self,
        request: CertificateSigningRequest,
        kind: str,
        reason: str,
        message: str,
        *,
        part: str = "approval",
    ) -> None:
        now = times.format_time(self._now())
        decided = request.model_copy(deep=True)
        decided.status.conditions = [
            *(request.status.conditions or ()),
            CertificateSigningRequestCondition(
                type=kind,
                status="True",
                reason=reason,
                message=message,
                lastUpdateTime=now,
                lastTransitionTime=now,
            ),
        ]
        await self._client.update(decided, subresource=part)

    def _wait(self, request: CertificateSigningRequest) -> None:
        """As the last of those that wait."""
        name = request.metadata.name
        self._waits.pop(name, None)
        self._waits[name] = request.metadata.resourceVersion or ""

    def _leave(self, request: CertificateSigningRequest) -> None:
        self._left[request.metadata.name] = request.metadata.resourceVersion or ""

    def _expired(self, request: CertificateSigningRequest) -> timedelta | None:
        """How old a request is that is to go; None while it is kept."""
        decided = [c for kind in (APPROVED, DENIED, FAILED) if (c := request.condition(kind))]
        moments = [c.lastUpdateTime for c in decided if c.lastUpdateTime]
        since = _moment(max(moments, default=request.metadata.creationTimestamp or ""))
        age = self._now() - since if since else timedelta()
        return age if age > (DECIDED_KEPT if decided else PENDING_KEPT) else None

    async def _remove(self, name: str, age: timedelta) -> None:
        try:
            await self._client.delete(CertificateSigningRequest, name)
        except (ApiError, TransportError) as error:
            log.debug("the old request for a certificate %s stays: %s", name, error)
        else:
            log.info("removed the request for a certificate %s, decided or idle for %s", name, age)


def _is_final(request: CertificateSigningRequest) -> bool:
    ended = request.condition(DENIED) or request.condition(FAILED)
    return bool(ended or request.status.certificate)


def _moment(text: str) -> datetime | None:
    try:
        return times.parse_time(text)
    except ValueError:
        return None


def settings_of(
    ca: KeyPair, serving_ca: KeyPair, lifetime_s: float, control_plane: Sequence[str]
) -> SigningSettings:
    """SetupError when a CA cannot sign. Blocking I/O."""
    for pair in {ca, serving_ca}:
        pki.read_authority(pair)
    others = tuple(control_plane) if serving_ca == ca else ()
    return SigningSettings(ca, serving_ca, timedelta(seconds=lifetime_s), others)
