"""The order of the steps decides which of several faults a client hears of."""

from __future__ import annotations

import pytest

from tests.orch.server.harness import NAMESPACES, PODS, Api, pod


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"serviceAccountName": "no", "priorityClassName": "no"}, "error looking up service"),
        ({"priorityClassName": "no"}, "no PriorityClass with name no"),
    ],
)
async def test_the_account_is_judged_before_the_priority(
    api: Api, spec: dict[str, str], text: str
) -> None:
    sent = pod()
    refused = await api.call("POST", PODS, sent | {"spec": sent["spec"] | spec})
    assert (refused.status, text in refused.json["message"]) == (403, True)


async def test_a_namespace_that_ends_is_the_reason_that_counts(api: Api) -> None:
    await api.call("POST", NAMESPACES, {"metadata": {"name": "x"}})
    pods = PODS.replace("default", "x")
    assert (await api.call("POST", pods, pod("held", finalizers=["a/b"]))).status == 201
    await api.call("DELETE", f"{NAMESPACES}/x")
    await api.call("DELETE", "/api/v1/namespaces/x/serviceaccounts/default")
    refused = await api.call("POST", pods, pod())
    assert refused.json["details"]["causes"][0]["reason"] == "NamespaceTerminating"
