from __future__ import annotations

import orjson

from orch.server.handlers.answer import deleted_status, success_status
from orch.server.objects.document import encode
from orch.server.storage.base import Stored
from orch.wire.records.kinds import LEASES, NODES


def test_success_is_a_status_with_an_optional_code() -> None:
    assert orjson.loads(success_status()) == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
    }
    assert orjson.loads(success_status(201))["code"] == 201


def test_a_deletion_names_exactly_what_went() -> None:
    document = {"kind": "K", "apiVersion": "v1", "metadata": {"name": "x", "uid": "u"}}
    stored = Stored("/k/x", 1, encode(document))
    assert orjson.loads(deleted_status(LEASES, stored))["details"] == {
        "name": "x",
        "group": "coordination.orch.io",
        "kind": "leases",
        "uid": "u",
    }
    assert "group" not in orjson.loads(deleted_status(NODES, stored))["details"]
