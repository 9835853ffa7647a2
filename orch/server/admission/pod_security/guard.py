"""Pod security: each write of a pod is judged by the policy of its namespace; pure.

As the reference's k8s.io/pod-security-admission/admission, whose texts clients see: what is
enforced is refused (403), the rest becomes audit annotations and warnings. Labels of namespaces are
validated (422), and one that enforces more is warned about pods that are already there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import NamedTuple, Protocol

from orch.server.admission.pod_security import baseline, levels
from orch.server.admission.pod_security.evaluation import evaluate
from orch.server.admission.pod_security.judged import Document as Part
from orch.server.admission.pod_security.judged import JudgedPod
from orch.server.admission.pod_security.levels import (
    AUDIT,
    ENFORCE,
    MODES,
    PRIVILEGED,
    WARN,
    LevelVersion,
    PodPolicy,
    is_stricter,
    policy_of,
)
from orch.server.admission.pod_security.survey import Survey
from orch.server.objects.document import Document, Notes, ObjectTarget
from orch.wire import errors, raw
from orch.wire.errors import Cause
from orch.wire.names import POD_SECURITY_PREFIX_UPSTREAM
from orch.wire.records.kinds import NAMESPACES, PODS, Resource

# These change nothing that is judged; all other subresources are, also those not known here.
_IGNORED = frozenset(
    ("exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status")
)
_UNJUDGED = frozenset(("activeDeadlineSeconds", "terminationGracePeriodSeconds", "tolerations"))


@dataclass(frozen=True, slots=True)
class Settings:
    """The server's: the policy of namespaces without labels, and who is never judged."""

    defaults: PodPolicy = field(default_factory=PodPolicy)
    usernames: frozenset[str] = frozenset()
    namespaces: frozenset[str] = frozenset()
    runtime_classes: frozenset[str] = frozenset()


class Asked(NamedTuple):
    """A request, as metrics label it."""

    operation: str
    resource: str
    subresource: str


class Counts(Protocol):
    def evaluated(self, decision: str, policy: LevelVersion, mode: str, asked: Asked) -> None: ...

    def exempted(self, asked: Asked) -> None: ...

    def failed(self, asked: Asked) -> None:
        """The labels of a namespace could not be read."""


class PodSecurity:
    """The `Admission` of pods and namespaces.

    `labels_of` a namespace is None when there is none. `survey_pods` goes through the pods of a
    namespace for the warnings of a `Survey`. `newest` is this server's minor version.
    """

    def __init__(
        self,
        settings: Settings,
        labels_of: Callable[[str], Mapping[str, str] | None],
        survey_pods: Callable[[Survey], Awaitable[Sequence[str]]],
        counts: Counts,
        newest: int,
    ) -> None:
        self._settings = settings
        self._labels_of = labels_of
        self._survey_pods = survey_pods
        self._counts = counts
        self._newest = newest

    def judges(self, resource: Resource) -> bool:
        return resource in (PODS, NAMESPACES)

    def check(self, target: ObjectTarget, new: Document, old: Document | None) -> None:
        """ApiError 403 for a pod, 422 for a namespace."""
        notes = target.notes or Notes()
        if target.strategy.resource is NAMESPACES:
            if not target.subresource:
                self._check_namespace(notes, new, old)
        elif target.subresource not in _IGNORED:
            self._check_pod(target, notes, new, old)

    def _check_pod(
        self, target: ObjectTarget, notes: Notes, new: Document, old: Document | None
    ) -> None:
        asked = Asked("create" if old is None else "update", "pod", target.subresource)
        exempt = self._exemption(target)
        if exempt:
            self._exempt(notes, asked, exempt)
            return
        policy, problems = self._policy_in(target.namespace)
        if policy.is_privileged and not problems:
            self._counts.evaluated("allow", policy.enforce, ENFORCE, asked)
            _annotate(notes, "enforce-policy", str(LevelVersion()))
            return
        if old is not None and _judged_part(new) == _judged_part(old):
            return
        if raw.text(new, "spec", "runtimeClassName") in self._settings.runtime_classes:
            self._exempt(notes, asked, "runtimeClass")
            return
        if problems:
            _annotate(notes, "error", f"Failed to parse policy: {_listed(problems)}")
            self._counts.failed(asked)
        self._judge(target, notes, policy, asked, new)

    def _exemption(self, target: ObjectTarget) -> str:
        """Why the request is not judged; "" when it is."""
        if target.namespace in self._settings.namespaces:
            return "namespace"
        return "user" if target.identity.name in self._settings.usernames else ""

    def _exempt(self, notes: Notes, asked: Asked, why: str) -> None:
        self._counts.exempted(asked)
        _annotate(notes, "exempt", why)

    def _policy_in(self, namespace: str) -> tuple[PodPolicy, tuple[Cause, ...]]:
        labels = self._labels_of(namespace)
        if labels is None:
            raise errors.not_found(NAMESPACES.plural, namespace)
        return policy_of(labels, self._settings.defaults)

    def _judge(
        self, target: ObjectTarget, notes: Notes, policy: PodPolicy, asked: Asked, pod: Document
    ) -> None:
        verdict_of = cache(partial(evaluate, pod=JudgedPod.of(pod), newest=self._newest))
        enforced, audited = verdict_of(policy.enforce), verdict_of(policy.audit)
        decision = "allow" if enforced.is_allowed else "deny"
        self._counts.evaluated(decision, policy.enforce, ENFORCE, asked)
        _annotate(notes, "enforce-policy", str(policy.enforce))
        if not audited.is_allowed:
            text = f'would violate PodSecurity "{policy.audit}": {audited.detail}'
            _annotate(notes, "audit-violations", text)
            self._counts.evaluated("deny", policy.audit, AUDIT, asked)
        if not enforced.is_allowed:
            why = f'violates PodSecurity "{policy.enforce}": {enforced.detail}'
            raise target.forbidden(pod["metadata"].get("name") or "", why)
        warned = verdict_of(policy.warn)
        if not warned.is_allowed:
            notes.warnings.append(f'would violate PodSecurity "{policy.warn}": {warned.detail}')
            self._counts.evaluated("deny", policy.warn, WARN, asked)

    def _check_namespace(self, notes: Notes, new: Document, old: Document | None) -> None:
        name, labels = new["metadata"].get("name") or "", _labels(new)
        defaults = self._settings.defaults
        policy, problems = policy_of(labels, defaults)
        before, known = (policy, ()) if old is None else policy_of(_labels(old), defaults)
        if problems and problems != known:
            raise errors.invalid(NAMESPACES.kind, name, problems)
        if old is not None and not _enforces_more(policy.enforce, before.enforce):
            return
        if name in self._settings.namespaces:
            notes.warnings += _ignored_policy(name, policy, defaults, labels)
        elif old is not None:
            classes = self._settings.runtime_classes
            survey = Survey(name, policy.enforce, self._newest, classes)
            notes.advice = partial(self._survey_pods, survey)


def _annotate(notes: Notes, key: str, text: str) -> None:
    notes.annotations[f"{POD_SECURITY_PREFIX_UPSTREAM}{key}"] = text


def _labels(namespace: Document) -> Mapping[str, str]:
    return namespace["metadata"].get("labels") or {}


def _listed(problems: Sequence[Cause]) -> str:
    texts = [f"{problem.field}: {problem.message}" for problem in problems]
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def _judged_part(pod: Document) -> tuple[Part, Part]:
    """The part of a pod that an update must change in order to be judged."""
    spec = pod.get("spec") or {}
    annotations = raw.mapping(pod, "metadata", "annotations")
    return (
        {name: value for name, value in spec.items() if name not in _UNJUDGED},
        {key: annotations[key] for key in annotations if key.startswith(baseline.ANNOTATIONS)},
    )


def _enforces_more(new: LevelVersion, old: LevelVersion) -> bool:
    if new == old or new.level == PRIVILEGED:
        return False
    return new.minor != old.minor or is_stricter(new.level, old.level)


def _ignored_policy(
    name: str, policy: PodPolicy, defaults: PodPolicy, labels: Mapping[str, str]
) -> Iterator[str]:
    """The warning that an exempt namespace's labels have no effect."""
    if policy.is_privileged or policy.is_like(defaults):
        return
    shown = ", ".join(
        f"{mode}={chosen}"
        for mode, chosen in zip(MODES, policy, strict=True)
        if chosen.level != PRIVILEGED and levels.has_label(labels, mode)
    )
    ignored = f"the policy ({shown}) will be ignored"
    yield f'namespace "{name}" is exempt from Pod Security, and {ignored}'
