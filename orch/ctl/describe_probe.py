"""A probe in one line, as `orchctl describe pod` tells it; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from orch.ctl.gotemplate_functions import text as go_text
from orch.wire import raw

Record = Mapping[str, Any]


def text(probe: Record) -> str:
    """`http-get http://:80/healthz delay=0s timeout=1s period=10s #success=1 #failure=3`."""
    return (
        f"{_action(probe)} delay={raw.number(probe, 'initialDelaySeconds')}s"
        f" timeout={raw.number(probe, 'timeoutSeconds')}s"
        f" period={raw.number(probe, 'periodSeconds')}s"
        f" #success={raw.number(probe, 'successThreshold')}"
        f" #failure={raw.number(probe, 'failureThreshold')}"
    )


def _action(probe: Record) -> str:
    if "exec" in probe:
        return f"exec {go_text(raw.value(probe, 'exec', 'command') or [])}"
    if "httpGet" in probe:
        return f"http-get {_url(raw.mapping(probe, 'httpGet'))}"
    if "tcpSocket" in probe:
        host, port = raw.text(probe, "tcpSocket", "host"), raw.value(probe, "tcpSocket", "port")
        return f"tcp-socket {host}:{port}"
    if "grpc" in probe:
        port, service = raw.number(probe, "grpc", "port"), raw.text(probe, "grpc", "service")
        return f"grpc <pod>:{port} {service}"
    return "unknown"


def _url(get: Record) -> str:
    host, path = raw.text(get, "host"), quote(raw.text(get, "path"), safe="$&+,/:;=@")
    bracketed = f"[{host}]" if ":" in host else host
    scheme = raw.text(get, "scheme").lower()
    slash = "" if not path or path.startswith("/") else "/"
    return f"{f'{scheme}:' if scheme else ''}//{bracketed}:{raw.value(get, 'port')}{slash}{path}"
