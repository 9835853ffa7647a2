"""Which objects are fetched for a pod."""

from __future__ import annotations

from nodeagent.pods.spec import references
from nodeagent.pods.spec.references import Reference
from tests.fakes.pods import container_data, pod


def test_only_what_is_fetched_counts_and_only_with_a_name() -> None:
    wanted = pod(
        container_data("app", envFrom=[{"configMapRef": {"name": "c1"}}, {"secretRef": {}}]),
        volumes=[{"name": "v", "secret": {"secretName": "s1"}}],
        serviceAccountName="bot",
    )
    secret = Reference("Secret", "s1")
    assert references.references(wanted) == {Reference("ConfigMap", "c1"), secret}
    assert references.shown_in_volumes(wanted) == {secret}
