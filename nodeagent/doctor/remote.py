"""Facts from the container runtime, and the clock skew against the API server."""

from __future__ import annotations

import email.utils
from datetime import UTC

from nodeagent.doctor.checks import RuntimeFacts
from nodeagent.runtime.base import RuntimeCallError
from nodeagent.runtime.cri import CriRuntime
from orch.client.kubeconfig import ClientConfig
from orch.component.process import clock
from orch.component.process.clock import Now

_DEADLINE_S = 10.0


async def query_runtime(endpoint: str) -> RuntimeFacts:
    """Version and readiness of the runtime at an endpoint, or its error."""
    runtime = CriRuntime(endpoint, timeout_s=_DEADLINE_S)
    try:
        version = await runtime.version()
        conditions = await runtime.conditions()
    except RuntimeCallError as error:
        return RuntimeFacts(endpoint, socket_exists=True, error=str(error))
    finally:
        await runtime.close()
    not_ready = tuple(
        f"{condition.type} is false: {condition.reason} {condition.message}".strip()
        for condition in conditions
        if not condition.status
    )
    return RuntimeFacts(endpoint, True, version.name, version.version, not_ready)


async def clock_skew(api: ClientConfig, now: Now = clock.utc_now) -> tuple[float | None, str]:
    """How many seconds this host is ahead of the API server; or None and the reason.

    The server reports whole seconds: half a second and half the round trip are tolerated.
    """
    from orch.client.transport import Transport, TransportError

    transport = Transport(api, timeout_s=_DEADLINE_S, user_agent="nodeagent-doctor")
    try:
        sent = now()
        response = await transport.request("GET", "/version")
        received = now()
    except TransportError as error:
        return None, str(error)
    finally:
        await transport.close()
    if response.status in (401, 403):
        return None, f"{api.server} refuses these credentials ({response.status})"
    try:
        date = response.headers.get("Date", "")
        server_time = email.utils.parsedate_to_datetime(date).astimezone(UTC)
    except ValueError:
        return None, f"{api.server} does not report the time"
    round_trip_s = (received - sent).total_seconds()
    ahead_s = (sent - server_time).total_seconds() + round_trip_s / 2 - 0.5
    allowed_s = 0.5 + max(round_trip_s, 0.0) / 2
    return (0.0 if abs(ahead_s) <= allowed_s else ahead_s), ""
