"""The defaults are well formed, and grant what their users need."""

from __future__ import annotations

import pytest

from orch.server.authz import defaults
from orch.server.objects import validation
from orch.server.request.attributes import RequestInfo
from orch.server.strategy import rbac
from orch.wire.records.authentication import Identity
from tests.orch.server.authz.worlds import default_index

APISERVER = Identity("system:apiserver", ("system:authenticated",))


@pytest.mark.parametrize("role", defaults.ROLES, ids=lambda one: one["metadata"]["name"])
def test_a_role_is_valid(role) -> None:
    assert not list(rbac.ROLE_STRATEGIES[0].validate(role, None))
    validation.check_shape(rbac.ROLE_STRATEGIES[0], role)
    assert role["metadata"]["labels"]["orch.io/bootstrapping"] == "rbac-defaults"


@pytest.mark.parametrize("binding", defaults.BINDINGS, ids=lambda one: one["metadata"]["name"])
def test_a_binding_is_valid_and_its_role_exists(binding) -> None:
    assert not list(rbac.BINDING_STRATEGIES[0].validate(binding, None))
    names = {role["metadata"]["name"] for role in defaults.ROLES}
    assert binding["roleRef"]["name"] in names


@pytest.mark.parametrize(
    "subresource",
    ["proxy", "stats", "log", "metrics", "configz", "healthz", "pods", "checkpoint", "statusz"],
)
def test_the_api_server_may_use_every_page_of_a_node_agent(subresource) -> None:
    for verb in ("get", "create", "delete"):
        info = RequestInfo(
            verb, "/x", is_resource=True, resource="nodes", name="n1", subresource=subresource
        )
        assert default_index().decide(APISERVER, info).allowed


def test_a_node_holds_nothing_by_role_but_what_is_approved_of_its_requests() -> None:
    node = Identity("system:node:n1", ("system:nodes",))
    held = {part for rule in default_index().held(node, "default").rules for part in rule.resources}
    requests = "certificatesigningrequests"
    assert held == {f"{requests}/selfnodeclient", f"{requests}/selfnodeserver"}
