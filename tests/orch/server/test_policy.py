from __future__ import annotations

import pytest

from orch.server.policy import Rule
from orch.server.requestinfo import parse_request

RULE = Rule(("get", "create"), ("nodes", "pods/status"))
PATHS = Rule(("get",), paths=("/a", "/b/*"))


@pytest.mark.parametrize(
    ("rule", "request_text", "allowed"),
    [
        (RULE, "GET /api/v1/nodes/n", True),
        (RULE, "GET /api/v1/nodes", False),
        (RULE, "GET /api/v1/nodes/n/status", False),
        (RULE, "GET /api/v1/namespaces/x/pods/p/status", True),
        (RULE, "GET /api/v1/namespaces/x/pods/p", False),
        (RULE, "GET /apis/other.io/v1/nodes/n", False),
        (RULE, "GET /nodes", False),
        (PATHS, "GET /a", True),
        (PATHS, "GET /a/", False),
        (PATHS, "GET /b/c/d", True),
        (PATHS, "GET /b", False),
        (PATHS, "POST /a", False),
        (PATHS, "GET /api/v1/nodes/n", False),
    ],
)
def test_a_rule_allows_what_it_names_and_nothing_else(rule, request_text, allowed) -> None:
    method, path = request_text.split()
    assert rule.allows(parse_request(method, path, {})) is allowed
