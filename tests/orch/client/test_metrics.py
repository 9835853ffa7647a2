"""Metrics of a program's requests as a client, and of how they ended."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orch.client.kubeconfig import ClientConfig
from orch.client.metrics import RestClientMetrics
from orch.client.transport import Transport, TransportError
from orch.component.diagnostics.metrics import Registry
from tests.fakes.http_api import http_api


async def test_requests_of_all_clients_are_counted_by_answer(free_port: Callable[[], int]) -> None:
    async with http_api() as api:
        gone = f"127.0.0.1:{free_port()}"
        one, two = (Transport(ClientConfig(api.url)) for _ in range(2))
        lost = Transport(ClientConfig(f"http://{gone}"))
        api.put("/api/v1/nodes/n1", {"metadata": {"name": "n1"}})
        for client in (one, two, two):
            await client.request("GET", "/api/v1/nodes/n1")
        await one.request("DELETE", "/api/v1/nodes/n2")
        async with one.stream("/api/v1/nodes/n1"):
            pass
        with pytest.raises(TransportError):
            await lost.request("GET", "/")
        for client in (one, two, lost):
            await client.close()
    registry = Registry()
    registry.register(RestClientMetrics([one, two, lost]))
    lines = registry.render("")[0].decode().splitlines()
    host = api.url.removeprefix("http://")
    assert [line for line in lines if line.startswith("rest_client_requests_total")] == [
        f'rest_client_requests_total{{code="200",host="{host}",method="GET"}} 4.0',
        f'rest_client_requests_total{{code="404",host="{host}",method="DELETE"}} 1.0',
        f'rest_client_requests_total{{code="<error>",host="{gone}",method="GET"}} 1.0',
    ]
    took = "rest_client_request_duration_seconds"
    assert f'{took}_bucket{{host="{host}",le="60.0",verb="GET"}} 4.0' in lines
    assert f'{took}_count{{host="{host}",verb="DELETE"}} 1.0' in lines
    assert f'{took}_count{{host="{gone}",verb="GET"}} 1.0' in lines
    [text] = [line for line in lines if line.startswith(f'{took}_sum{{host="{host}",verb="GET"}}')]
    assert 0 < float(text.rpartition(" ")[2]) < 60
