"""Asks admission webhooks: who is asked, in which order, and what it means when they fail.

Those that change objects are asked one after the other, by the names of their configurations, then
those that only refuse, all at once. A request waits without its seat of flow control; each webhook
takes so many requests at a time, of all users in turn. What the server does by itself, and changes
of these configurations, are never subject to webhooks: they could not be repaired otherwise.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeVar

import orjson

from orch.client.answers import TransportError
from orch.client.kubeconfig import ClientConfig
from orch.client.transport import Transport
from orch.component.http.fair_queue import Bounds, Turns
from orch.component.process import loops
from orch.component.process.once_log import OnceLog
from orch.server import turns
from orch.server.admission.webhooks import hooks as webhooks_hooks
from orch.server.admission.webhooks import review
from orch.server.admission.webhooks.hooks import Hook, Matched, Name
from orch.server.admission.webhooks.review import AnswerRefused, WebhookAnswer
from orch.server.controllers.namespaces import SELF
from orch.server.flow import control
from orch.server.objects.document import Attempt, Document, ObjectTarget, Settle, decode
from orch.server.objects.informer import StorageInformer
from orch.server.objects.metadata import drop_double_owners
from orch.server.storage.base import Storage, Stored
from orch.server.webhooks.metrics import AdmissionWebhookMetrics
from orch.wire.errors import ApiError
from orch.wire.names import ADMISSION_GROUP
from orch.wire.records.kinds import MUTATING_WEBHOOKS, NAMESPACES, VALIDATING_WEBHOOKS

log = logging.getLogger(__name__)

AT_ONCE = 32  # requests to one webhook
_WAIT_S = 60.0  # longer than any webhook may take
_CALL = 2 * control.BYTES_OF_CHANGE  # what to connect and to ask takes of the tenants' rate
_LARGE_BYTES = 32 * 1024  # of question and answer: more is read in a thread
_KEPT_MAX = 4096  # kinds of requests whose webhooks are remembered
_AUDIT = "webhook.admission.orch.io/"

Labels = Callable[[str], Mapping[str, str] | None]  # of a namespace; None: there is none
Result = TypeVar("Result")
Concerned = Sequence[tuple[Hook, Name]]


def _turns() -> Turns:
    """To connect is costly: one in each turn of the event loop."""
    return Turns(Bounds(seats=AT_ONCE, starts_per_turn=1, wait_s=_WAIT_S))


class CallFailed(Exception):
    """A webhook did not answer as it must; `code` is its HTTP status, or 503."""

    def __init__(self, text: str, code: int = 503) -> None:
        super().__init__(text)
        self.code = code


@dataclass(slots=True)
class _Server:
    """The connections to a webhook, closed when it is retired and nobody waits for an answer."""

    transport: Transport
    turns: Turns = field(default_factory=_turns)
    asked: int = 0
    retired: bool = False

    def close_if_idle(self) -> None:
        if self.retired and not self.asked:
            loops.spawn(self.transport.close(), name="webhook connections")


class _Round(NamedTuple):
    """Mutating webhooks asked one after the other; `changed` since the object was last settled."""

    attempt: Attempt
    changed: bool
    passed: tuple[Hook, ...]  # those that saw the newest object, and can see another
    again: tuple[Hook, ...]  # those that saw an older one


class AdmissionWebhooks:
    """The `Webhooks` of the backend; `informers` keep it up to date."""

    def __init__(self, storage: Storage, metrics: AdmissionWebhookMetrics, labels: Labels) -> None:
        self.exist = False
        self._metrics = metrics
        self._labels = labels
        self._configured: dict[bool, dict[str, tuple[Hook, ...]]] = {True: {}, False: {}}
        self._hooks: dict[bool, tuple[Hook, ...]] = {True: (), False: ()}
        self._concerned: dict[tuple[bool, Matched], Concerned] = {}
        self._servers: dict[tuple[str, str, str, bytes], _Server] = {}
        self._troubles = OnceLog(log)
        self.informers = tuple(
            StorageInformer(storage, resource, partial(self._update, is_mutating))
            for is_mutating, resource in ((True, MUTATING_WEBHOOKS), (False, VALIDATING_WEBHOOKS))
        )

    def concern(self, target: ObjectTarget, operation: str) -> bool:
        if target.identity is SELF or target.strategy.resource.group == ADMISSION_GROUP:
            return False
        return bool(self._find(True, target, operation) or self._find(False, target, operation))

    async def complete(self, target: ObjectTarget, attempt: Attempt, settle: Settle) -> Attempt:
        """As the reference: a second round for those that ask for it and saw an older object."""
        hooks = self._find(True, target, attempt.operation)
        if not hooks:
            return attempt
        async with control.aside():
            first = await self._round(0, hooks, target, attempt)
        if not first.changed or first.attempt.new is None:
            return attempt
        attempt, again = await self._settled(first, settle)
        if again:
            wanted = [pair for pair in hooks if pair[0] in again]
            async with control.aside():
                second = await self._round(1, wanted, target, attempt)
            if second.changed:
                attempt, _ = await self._settled(second, settle)
        return attempt

    async def _settled(self, done: _Round, settle: Settle) -> tuple[Attempt, Collection[Hook]]:
        """The attempt with its object settled, and who has not seen that one."""
        made = done.attempt.new or {}
        settled = await settle(made)
        seen = settled == made
        return done.attempt._replace(new=settled), done.again + (() if seen else done.passed)

    async def judge(self, target: ObjectTarget, attempt: Attempt) -> None:
        """The first refusal in their order counts, whichever came first."""
        labels = self._labels_for(target, attempt)
        wanted = [
            pair
            for pair in self._find(False, target, attempt.operation)
            if pair[0].selects(labels, attempt.new, attempt.old)
        ]
        if not wanted:
            return
        async with control.aside():
            results = await asyncio.gather(
                *(self._ask(hook, name, target, attempt) for hook, name in wanted),
                return_exceptions=True,
            )
        try:
            for result in results:
                if isinstance(result, BaseException):
                    raise result
        finally:
            del results, result  # which hold this frame: the whole request would stay as garbage

    async def close(self) -> None:
        for server in [*self._servers.values()]:  # an update may retire some meanwhile
            await server.transport.close()

    def _update(self, is_mutating: bool, key: str, stored: Stored | None) -> None:
        configured = self._configured[is_mutating]
        if stored is None:
            configured.pop(key, None)
        else:
            configured[key] = webhooks_hooks.hooks_of(decode(stored), is_mutating=is_mutating)
        self._hooks[is_mutating] = tuple(
            hook for key in sorted(configured) for hook in configured[key]
        )
        self.exist = any(self._hooks.values())
        self._concerned.clear()
        used = {_key(hook) for hooks in self._hooks.values() for hook in hooks}
        for gone in self._servers.keys() - used:
            server = self._servers.pop(gone)
            server.retired = True
            server.close_if_idle()
        self._troubles.retain({(hook.step, hook.configuration, hook.name)
                               for hooks in self._hooks.values() for hook in hooks})  # fmt: skip

    def _find(self, is_mutating: bool, target: ObjectTarget, operation: str) -> Concerned:
        resource = target.strategy.resource
        group = target.alias or resource.group
        asked = Matched(operation, resource, target.subresource, group)
        found = self._concerned.get((is_mutating, asked))
        if found is None:
            if len(self._concerned) >= _KEPT_MAX:
                self._concerned.clear()
            found = webhooks_hooks.concerned(self._hooks[is_mutating], asked)
            self._concerned[is_mutating, asked] = found
        return found

    def _labels_for(self, target: ObjectTarget, attempt: Attempt) -> Mapping[str, str] | None:
        """The labels that a namespace selector sees; those of a new or changed namespace itself."""
        resource = target.strategy.resource
        if resource is NAMESPACES:
            about = attempt.old if attempt.new is None else attempt.new
            found = ((about or {}).get("metadata") or {}).get("labels")
            return found if isinstance(found, dict) else {}
        return (self._labels(target.namespace) or {}) if resource.namespaced else None

    async def _round(
        self, number: int, hooks: Concerned, target: ObjectTarget, attempt: Attempt
    ) -> _Round:
        changed = False
        passed: list[Hook] = []
        again: list[Hook] = []
        for index, (hook, name) in enumerate(hooks):
            labels = self._labels_for(target, attempt)
            if not hook.selects(labels, attempt.new, attempt.old):
                continue
            made = await self._ask(hook, name, target, attempt)
            mutated = made is not None and made != attempt.new
            _note_mutation(target, hook, (number, index), mutated=mutated)
            if mutated:
                attempt, changed = attempt._replace(new=made), True
                again += passed
                passed.clear()
            if hook.is_reinvoked:
                passed.append(hook)
        return _Round(attempt, changed, tuple(passed), tuple(again))

    async def _ask(
        self, hook: Hook, name: Name, target: ObjectTarget, attempt: Attempt
    ) -> Document | None:
        """What the webhook makes of the object, None for nothing; ApiError."""
        loop = asyncio.get_running_loop()
        began_s, operation = loop.time(), attempt.operation
        subject = (hook.step, hook.configuration, hook.name)
        control.charge(_CALL)
        try:
            verdict, made = await self._call(hook, name, target, attempt)
        except (CallFailed, AnswerRefused) as error:
            code = getattr(error, "code", 503)
            seconds = loop.time() - began_s
            self._troubles.failed(
                "the admission webhook %r of %s fails: %s", hook.name, hook.configuration,
                str(error), subject=subject,
            )  # fmt: skip
            if hook.fails_open:
                self._metrics.answered(hook, operation, seconds, code)
                _note_failure(target, hook)
                return None
            self._metrics.rejected(hook, operation, seconds, code, failed=True)
            text = f'failed calling webhook "{hook.name}": {error}'
            raise ApiError(500, "InternalError", f"Internal error occurred: {text}") from error
        self._troubles.recovered(
            "the admission webhook %r answers again", hook.name, subject=subject
        )
        _note(target, hook, verdict)
        seconds = loop.time() - began_s
        if not verdict.allowed:
            self._metrics.rejected(hook, operation, seconds, verdict.code, failed=False)
            raise review.refusal(hook, verdict)
        self._metrics.answered(hook, operation, seconds)
        return made

    async def _call(
        self, hook: Hook, name: Name, target: ObjectTarget, attempt: Attempt
    ) -> tuple[WebhookAnswer, Document | None]:
        """CallFailed or AnswerRefused, within the webhook's time; that to wait in counts."""
        uid = str(uuid.uuid4())
        sent = await turns.compute(partial(review.question, target, attempt, name, uid))
        server = self._server_of(hook)
        server.asked += 1
        try:
            async with asyncio.timeout(hook.timeout_s), server.turns.hold(target.identity.name):
                body = await _post(server.transport, hook, sent)
        except TimeoutError:
            body = None
        finally:
            server.asked -= 1
            server.close_if_idle()
        if body is None:  # raised here, as a TimeoutError holds the task, which holds this error
            text = f"it did not answer within its {hook.timeout_s:g} s (context deadline exceeded)"
            raise CallFailed(text, 504)
        compute = turns.aside if len(sent) + len(body) > _LARGE_BYTES else _at_once
        verdict = await compute(partial(review.read, hook, body, uid))
        if not verdict.patch:
            return verdict, None
        if review.copies(verdict):
            compute = turns.aside
        work = partial(review.patched, target.strategy.resource, name, attempt.new, verdict)
        made = await compute(work)
        doubled = drop_double_owners(made)
        if target.notes is not None:
            target.notes.warnings += doubled
        return verdict, made

    def _server_of(self, hook: Hook) -> _Server:
        key = _key(hook)
        server = self._servers.get(key)
        if server is None:
            config = ClientConfig(server=hook.server, ca_data=hook.authority)
            server = _Server(Transport(config, timeout_s=0.0, user_agent="orch-apiserver"))
            self._servers[key] = server
        return server


async def _at_once(work: Callable[[], Result]) -> Result:
    return work()


def _key(hook: Hook) -> tuple[str, str, str, bytes]:
    return hook.configuration, hook.name, hook.server, hook.authority


async def _post(transport: Transport, hook: Hook, sent: bytes) -> bytes:
    try:
        answer = await transport.request(
            "POST", hook.path,
            params={"timeout": f"{hook.timeout_s:g}s"},
            body=sent,
            content_type="application/json",
            most_bytes=review.MAX_ANSWER_BYTES,
        )  # fmt: skip
    except TransportError as error:
        raise CallFailed(f"failed to call webhook: {error}") from error
    if answer.status != 200:
        text = f"failed to call webhook: the server answered {answer.status}"
        raise CallFailed(text, answer.status)
    return answer.body


def _note(target: ObjectTarget, hook: Hook, verdict: WebhookAnswer) -> None:
    if target.notes is not None:
        target.notes.warnings += verdict.warnings
        for key, text in verdict.annotations.items():
            target.notes.annotations[f"{hook.name}/{key}"] = text


def _note_mutation(
    target: ObjectTarget, hook: Hook, place: tuple[int, int], *, mutated: bool
) -> None:
    if target.notes is not None:
        shown = {"configuration": hook.configuration, "webhook": hook.name, "mutated": mutated}
        key = f"mutation.{_AUDIT}round_{place[0]}_index_{place[1]}"
        target.notes.annotations[key] = orjson.dumps(shown).decode()


def _note_failure(target: ObjectTarget, hook: Hook) -> None:
    if target.notes is not None:
        what = "mutation" if hook.is_mutating else "validating"
        target.notes.annotations[f"failed-open.{what}.{_AUDIT}{hook.name}"] = hook.configuration
