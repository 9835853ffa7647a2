"""The end of the connections to webhooks, beside updates of their configurations."""

from __future__ import annotations

from typing import Any

import pytest

from orch.client.transport import Transport
from orch.server.webhooks.admission import AdmissionWebhooks
from tests.fakes.webhook import FakeWebhook
from tests.orch.server.harness import Api
from tests.orch.server.webhooks.test_admission import MAPS, PATHS, config_map, configure, hooks

__all__ = ["hooks"]  # a fixture


async def test_a_configuration_may_go_while_connections_are_closed(
    api: Api, hooks: FakeWebhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[AdmissionWebhooks] = []
    judge = AdmissionWebhooks.judge

    async def noted(self: AdmissionWebhooks, *arguments: Any) -> None:
        made.append(self)
        await judge(self, *arguments)

    monkeypatch.setattr(AdmissionWebhooks, "judge", noted)
    for number, kind in enumerate(PATHS):
        await configure(api, hooks, kind, {"path": f"/{number}"}, name=kind.lower())
    assert (await api.call("POST", MAPS, config_map())).status == 201
    closed = 0
    close = Transport.close

    async def closing(self: Transport) -> None:
        nonlocal closed
        closed += 1
        if closed == 1:
            for kind, path in PATHS.items():
                await api.call("DELETE", f"{path}/{kind.lower()}")
        await close(self)

    monkeypatch.setattr(Transport, "close", closing)
    await made[0].close()
    assert closed
