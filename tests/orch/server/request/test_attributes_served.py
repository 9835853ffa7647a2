from __future__ import annotations

import pytest

from orch.server.request.attributes import fits, is_served, parse_request
from orch.server.strategy.table import ServedKinds

ONE = "/api/v1/namespaces/x/pods"


@pytest.mark.parametrize(
    ("request_text", "served", "fitting"),
    [
        (f"GET {ONE}", True, True),
        (f"GET {ONE}/p", True, True),
        ("GET /api/v1/pods", True, True),
        (f"POST {ONE}", True, True),
        (f"DELETE {ONE}", True, True),
        (f"POST {ONE}/p/binding", True, True),
        ("GET /api/v1/nodes/n/proxy/x", True, True),
        ("GET /api/v1/namespaces/x/status", True, True),
        ("POST /api/v1/pods", True, False),
        ("DELETE /api/v1/pods", True, False),
        (f"POST {ONE}/p", True, False),
        (f"PUT {ONE}", True, False),
        (f"PATCH {ONE}", True, False),
        ("DELETE /api/v1/namespaces", True, False),
        ("BREW /api/v1/nodes", True, False),
        (f"GET {ONE}/p/attach", True, True),
        (f"GET {ONE}/p/attach/x", False, None),
        (f"GET {ONE}/p/resize", True, True),
        (f"PATCH {ONE}/p/status/x", False, None),
        (f"GET {ONE}/p/status/", True, True),
        ("GET /api/v1/pods/p", False, None),
        ("GET /api/v1/namespaces/x/nodes", False, None),
        ("GET /api/v1/namespaces/x/nodes/n", False, None),
    ],
)
def test_paths_and_verbs_fit_the_scope_of_the_kind(request_text, served, fitting) -> None:
    method, path = request_text.split()
    info = parse_request(method, path, {})
    strategy = ServedKinds().find(info.group, info.version, info.resource)
    assert strategy is not None
    assert is_served(strategy.resource, info) is served
    if served:
        assert fits(strategy.resource, info) is fitting
