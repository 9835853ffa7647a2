"""Records of actions on a container at set times: probes, and hooks of its start and end."""

from __future__ import annotations

from pydantic import Field

from orch.wire.records.meta import Int32, WireModel


class ExecAction(WireModel):
    command: list[str] = Field(default_factory=list)


class HTTPHeader(WireModel):
    name: str
    value: str = ""


class HTTPGetAction(WireModel):
    path: str | None = None
    port: Int32 | str  # a number, or the name of one of the container's ports
    host: str | None = None
    scheme: str | None = None  # HTTP | HTTPS
    httpHeaders: list[HTTPHeader] | None = None


class TCPSocketAction(WireModel):
    port: Int32 | str
    host: str | None = None


class GRPCAction(WireModel):
    port: Int32
    service: str | None = None  # "" asks for the server as a whole


class Probe(WireModel):
    """One of the actions is set; times are whole seconds, None the default."""

    exec: ExecAction | None = None
    httpGet: HTTPGetAction | None = None
    tcpSocket: TCPSocketAction | None = None
    grpc: GRPCAction | None = None
    initialDelaySeconds: Int32 | None = None
    periodSeconds: Int32 | None = None
    timeoutSeconds: Int32 | None = None
    successThreshold: Int32 | None = None
    failureThreshold: Int32 | None = None
    terminationGracePeriodSeconds: int | None = None


class SleepAction(WireModel):
    seconds: int


class LifecycleHandler(WireModel):
    """One of the actions is set."""

    exec: ExecAction | None = None
    httpGet: HTTPGetAction | None = None
    tcpSocket: TCPSocketAction | None = None
    sleep: SleepAction | None = None


class Lifecycle(WireModel):
    postStart: LifecycleHandler | None = None
    preStop: LifecycleHandler | None = None
    stopSignal: str | None = None  # SIGUSR1, SIGRTMIN+1, …
