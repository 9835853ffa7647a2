"""The pods of a namespace against a level that it is about to enforce; pure."""

from __future__ import annotations

from collections.abc import Collection

from orch.server.admission.pod_security.evaluation import evaluate
from orch.server.admission.pod_security.judged import Document, JudgedPod
from orch.server.admission.pod_security.levels import LevelVersion
from orch.wire import raw


class Survey:
    """Collects what pods violate; `checked` were judged, `exempt` are not to be.

    One pod of each controller comes first: the others, its replicas, are likely to be the same.
    """

    def __init__(
        self, namespace: str, enforce: LevelVersion, newest: int, exempt_classes: Collection[str]
    ) -> None:
        self.namespace = namespace
        self.checked = 0
        self.exempt = 0
        self._enforce = enforce
        self._newest = newest
        self._exempt_classes = exempt_classes
        self._controllers: set[str] = set()
        self._replicas: set[str] = set()
        self._names: dict[str, list[str]] = {}  # by what they violate

    def add(self, pod: Document) -> bool:
        """False for a replica, which is judged when it is added again."""
        if raw.text(pod, "spec", "runtimeClassName") in self._exempt_classes:
            self.exempt += 1
            return True
        if self._is_put_off(pod):
            return False
        self.checked += 1
        verdict = evaluate(self._enforce, JudgedPod.of(pod), self._newest)
        if not verdict.is_allowed:
            self._names.setdefault(verdict.reason, []).append(raw.text(pod, "metadata", "name"))
        return True

    def _is_put_off(self, pod: Document) -> bool:
        uid, controller = raw.text(pod, "metadata", "uid"), _controller_of(pod)
        if not controller or uid in self._replicas:
            return False
        if controller in self._controllers:
            self._replicas.add(uid)
            return True
        self._controllers.add(controller)
        return False

    def warnings(self, pods: int) -> list[str]:
        """For the client, when there are so many pods in the namespace."""
        total = pods - self.exempt
        texts = []
        if self.checked < total:
            texts.append(
                "new PodSecurity enforce level only checked against the first"
                f" {self.checked} of {total} existing pods"
            )
        if self._names:
            texts.append(
                f'existing pods in namespace "{self.namespace}" violate the new PodSecurity enforce'
                f' level "{self._enforce}"'
            )
        found = self._names.items()
        return texts + sorted(f"{_some(names)}: {reason}" for reason, names in found)


def _controller_of(pod: Document) -> str:
    for owner in raw.records(pod, "metadata", "ownerReferences"):
        if owner.get("controller") is True:
            return raw.text(owner, "uid")
    return ""


def _some(names: list[str]) -> str:
    """The first name, and how many others."""
    others = len(names) - 1
    if not others:
        return names[0]
    return f"{min(names)} (and {others} other {'pod' if others == 1 else 'pods'})"
