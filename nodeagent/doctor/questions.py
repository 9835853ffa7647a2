"""What others say when asked: the container runtime, and the API server with its clock."""

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


async def ask_runtime(endpoint: str) -> RuntimeFacts:
    """Version and readiness of what listens there; the facts say why there is no answer."""
    runtime = CriRuntime(endpoint, timeout_s=_DEADLINE_S)
    try:
        version = await runtime.version()
        conditions = await runtime.conditions()
    except RuntimeCallError as error:
        return RuntimeFacts(endpoint, socket_exists=True, error=str(error))
    finally:
        await runtime.close()
    complaints = tuple(
        f"{one.type} is false: {one.reason} {one.message}".strip()
        for one in conditions
        if not one.status
    )
    return RuntimeFacts(endpoint, True, version.name, version.version, complaints)


async def ask_clock(api: ClientConfig, now: Now = clock.utc_now) -> tuple[float | None, str]:
    """How many seconds this host is ahead of the API server; or None and why it is not known.

    The server tells whole seconds: half of one and half the round trip are allowed for.
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
        told = email.utils.parsedate_to_datetime(response.headers.get("Date", "")).astimezone(UTC)
    except ValueError:
        return None, f"{api.server} does not tell the time"
    trip_s = (received - sent).total_seconds()
    ahead_s = (sent - told).total_seconds() + trip_s / 2 - 0.5
    allowed_s = 0.5 + max(trip_s, 0.0) / 2
    return (0.0 if abs(ahead_s) <= allowed_s else ahead_s), ""
