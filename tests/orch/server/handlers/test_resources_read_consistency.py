from __future__ import annotations

import pytest

from orch.server.handlers import resources
from orch.server.request.attributes import parse_request
from orch.server.storage import base


class Recorder:
    """Storage as far as it is asked here."""

    def __init__(self) -> None:
        self.asked: list[object] = []

    async def settle(self) -> None:
        self.asked.append("settle")

    async def reach(self, revision: int) -> bool:
        self.asked.append(revision)
        return True


@pytest.mark.parametrize(
    ("method", "query", "asked"),
    [
        ("GET", {}, ["settle"]),
        ("GET", {"watch": "1"}, ["settle"]),
        ("GET", {"resourceVersion": "0"}, []),
        ("GET", {"resourceVersion": "17"}, [17]),
        ("GET", {"resourceVersion": "17", "watch": "1"}, [17]),
        ("GET", {"resourceVersion": "9" * 5000}, []),
        ("GET", {"resourceVersion": "٣"}, []),
        ("GET", {"resourceVersion": "-1"}, []),
        ("PUT", {"resourceVersion": "17"}, ["settle"]),
        ("POST", {}, ["settle"]),
    ],
)
async def test_a_request_reads_what_is_as_new_as_it_asks_for(method, query, asked) -> None:
    storage = Recorder()
    info = parse_request(method, "/api/v1/nodes/n" if method == "PUT" else "/api/v1/nodes", query)
    await resources.ensure_read_consistency(storage, info, query)  # type: ignore[arg-type]
    assert storage.asked == asked


@pytest.mark.parametrize(
    ("error", "code", "reason", "retry"),
    [
        (base.StorageFailed("full"), 500, "InternalError", None),
        (base.StorageUnavailable("away"), 503, "ServiceUnavailable", 1),
        (base.OutcomeUnknown("lost"), 504, "Timeout", None),
        (base.ObjectTooLarge("big"), 413, "RequestEntityTooLarge", None),
    ],
)
def test_each_failure_has_its_code_and_only_a_harmless_one_asks_for_a_retry(
    error: base.StorageFailed, code: int, reason: str, retry: int | None
) -> None:
    answer = resources.refusal_for(error)
    assert (answer.code, answer.reason, answer.retry_after_s) == (code, reason, retry)
    assert str(error) in answer.message
