"""Makes this machine a node of a cluster: its files, and how they are undone.

Every step may be repeated: a key that was made is used again, a certificate that is valid is kept,
and the file that says that this machine has joined is written last.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from nodeagent.certificates import discovery, enrolment
from nodeagent.certificates.enrolment import NotGranted, Wanted
from nodeagent.config.options import CLIENT_FILE, SERVING_FILE
from orch.client.kubeconfig import ClientConfig, write_kubeconfig
from orch.client.resources import ApiClient
from orch.client.transport import Transport, TransportError
from orch.component import signing_requests
from orch.component.certificates import validity
from orch.component.process.atomic_file import replace_file
from orch.component.process.clock import Now
from orch.component.process.daemon import SetupError
from orch.wire import names
from orch.wire.errors import ApiError
from orch.wire.records.core import Node, NodeCondition
from orch.wire.times import format_time

_TIMEOUT_S = 10.0
_READY = "Ready"
_UNREGISTERED = "the agent has not registered it"
_AGAIN = "'orchctl token create --print-join-command' makes another"


@dataclass(frozen=True, slots=True)
class Place:
    """Where the agent's files are."""

    settings: Path  # /etc/nodeagent
    certificates: Path  # below the root directory

    @property
    def kubeconfig(self) -> Path:
        return self.settings / "kubeconfig"

    @property
    def drop_in(self) -> Path:
        return self.settings / "config.d" / "10-join.conf"

    @property
    def environment(self) -> Path:
        """Flags for the service; written last, so it tells that this machine has joined."""
        return self.settings / "join.env"

    @property
    def authority(self) -> Path:
        return self.certificates / "cluster-ca.crt"

    @property
    def client(self) -> Path:
        return self.certificates / CLIENT_FILE

    @property
    def serving(self) -> Path:
        return self.certificates / SERVING_FILE

    @property
    def pending_key(self) -> Path:
        return self.certificates / "nodeagent-client.key.pending"

    def own_files(self) -> tuple[Path, ...]:
        """All that joining makes, the most telling first."""
        return (
            self.environment, self.drop_in, self.kubeconfig, self.client, self.serving,
            self.pending_key, self.authority,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cluster:
    """What this machine joins, and as which node."""

    server: str
    authority: bytes  # PEM
    node_name: str
    node_ip: str = ""

    def anonymous(self) -> ClientConfig:
        return ClientConfig(self.server, ca_data=self.authority)

    def with_token(self, token: str) -> ClientConfig:
        return ClientConfig(self.server, ca_data=self.authority, token=token)

    def as_node(self, place: Place) -> ClientConfig:
        pair = str(place.client)
        return ClientConfig(self.server, str(place.authority), cert_file=pair, key_file=pair)


async def is_member(cluster: Cluster, place: Place, now: datetime) -> bool:
    """Whether this machine has a certificate that the cluster takes for this node."""
    try:
        pem = await asyncio.to_thread(place.client.read_bytes)
        known = await asyncio.to_thread(place.authority.read_bytes)
        if known != cluster.authority or validity(pem)[1] <= now:
            return False
    except (OSError, ValueError):
        return False
    try:
        await _own_node(cluster.as_node(place), cluster.node_name)
    except (ApiError, TransportError):
        return False
    return True


async def enrol(cluster: Cluster, place: Place, token: str, *, timeout_s: float) -> str:
    """Get the client certificate of the node; returns the name of the request. SetupError says
    what keeps this machine from it.
    """
    key = await asyncio.to_thread(_pending_key, place)
    transport = Transport(
        cluster.with_token(token),
        timeout_s=_TIMEOUT_S,
        user_agent=f"nodeagent-join/{names.VERSION}",
    )
    name = ""
    try:
        client = ApiClient(transport)
        async with asyncio.timeout(timeout_s):
            name = await enrolment.ask(client, Wanted(cluster.node_name), key)
            pem = await enrolment.wait(client, name, key)
    except TimeoutError:
        raise SetupError(_not_issued(name, timeout_s)) from None
    except NotGranted as error:
        await asyncio.to_thread(place.pending_key.unlink, missing_ok=True)
        raise SetupError(f"the cluster gives this machine no certificate: {error}") from error
    except ApiError as error:
        if error.code == 401:
            raise SetupError(
                f"{cluster.server} does not take the token: it is wrong, or its time is over;"
                f" {_AGAIN}"
            ) from error
        raise SetupError(f"{cluster.server} refuses the request: {error}") from error
    except TransportError as error:
        raise SetupError(str(error)) from error
    finally:
        await transport.close()
    await asyncio.to_thread(_keep, cluster, place, pem, key)
    return name


def _not_issued(name: str, timeout_s: float) -> str:
    if not name:
        return (
            f"no certificate came within {timeout_s:g} s: the API server did not answer the request"
            " for one; run this again once it does"
        )
    return (
        f"no certificate came within {timeout_s:g} s: 'orchctl get csr {name}' shows what it waits"
        f" for. If it is Pending, 'orchctl certificate approve {name}' grants it; if Approved,"
        " no orch-controller-manager runs with --cluster-signing-cert-file. Then run this again"
    )


def _pending_key(place: Place) -> bytes:
    """The key of a request that was interrupted, or a new one."""
    place.certificates.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError, ValueError):
        key = place.pending_key.read_bytes()
        signing_requests.fingerprint(key)
        return key
    key = signing_requests.make_key()
    replace_file(place.pending_key, key, durable=True)
    return key


def _keep(cluster: Cluster, place: Place, pem: bytes, key: bytes) -> None:
    replace_file(place.authority, cluster.authority, mode=0o644, durable=True)
    replace_file(place.client, pem + key, durable=True)
    place.pending_key.unlink(missing_ok=True)


def write_settings(cluster: Cluster, place: Place) -> None:
    """The kubeconfig, the drop-in of the configuration, and the flags of the service."""
    place.drop_in.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_kubeconfig(str(place.kubeconfig), cluster.as_node(place), name="node")
    replace_file(
        place.drop_in,
        (
            "# Written by 'nodeagent join', removed by 'nodeagent leave'.\n"
            f"apiVersion: {names.AGENT_CONFIG_API_VERSION}\n"
            f"kind: {names.AGENT_CONFIG_KIND}\n"
            "rotateCertificates: true\n"
            "serverTLSBootstrap: true\n"
            "authentication:\n"
            f"  x509: {{clientCAFile: {json.dumps(str(place.authority))}}}\n"
        ).encode(),
    )
    flags = f"--kubeconfig={place.kubeconfig} --hostname-override={cluster.node_name}"
    if cluster.node_ip:
        flags += f" --node-ip={cluster.node_ip}"
    text = f"# Written by 'nodeagent join', removed by 'nodeagent leave'.\nJOIN_ARGS=\"{flags}\"\n"
    replace_file(place.environment, text.encode())


async def until_ready(cluster: Cluster, place: Place, *, timeout_s: float) -> Node:
    """The node, once it is Ready; SetupError says why it is not."""
    why = _UNREGISTERED
    transport = Transport(cluster.as_node(place), timeout_s=_TIMEOUT_S)
    client = ApiClient(transport)
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                try:
                    node = await client.find(Node, cluster.node_name)
                    if node is not None and not (why := _unready(node)):
                        return node
                except (ApiError, TransportError) as error:
                    why = str(error)
                await asyncio.sleep(enrolment.POLL_S)
    except TimeoutError:
        raise SetupError(f"node {cluster.node_name} is not Ready: {why}") from None
    finally:
        await transport.close()


def _unready(node: Node) -> str:
    """Why it is not Ready; "" when it is."""
    ready = next((c for c in node.status.conditions or () if c.type == _READY), None)
    if ready is None:
        return _UNREGISTERED
    return "" if ready.status == "True" else ready.message or f"Ready is {ready.status}"


async def until_serving(node: Node, now: Now, *, timeout_s: float) -> bool:
    """Wait until the agent serves with a certificate of an authority; whether it does.

    Before, it shows one that it signed itself, or the last one, which has expired.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            while True:
                if await asyncio.to_thread(_serves, node, now()):
                    return True
                await asyncio.sleep(enrolment.POLL_S)
    return False


def _serves(node: Node, now: datetime) -> bool:
    addresses = {one.type: one.address for one in node.status.addresses or ()}
    host = addresses.get("InternalIP") or node.metadata.name
    ports = node.status.daemonEndpoints
    endpoint = ports.nodeagentEndpoint if ports else None
    try:
        own, *_ = discovery.presented(host, endpoint.Port if endpoint else names.AGENT_PORT)
        return validity(own)[1] > now and not signing_requests.hosts_of(own)[1]
    except (OSError, ValueError):
        return False


async def retire(config: ClientConfig, node_name: str, now: datetime) -> str:
    """Delete the node; where the rights do not suffice, cordon it and say that it has left, so that
    a machine may join under its name. Returns what was done. ApiError, TransportError.
    """
    transport = Transport(config, timeout_s=_TIMEOUT_S)
    client = ApiClient(transport)
    try:
        try:
            await client.delete(Node, node_name)
            return "is deleted"
        except ApiError as error:
            if error.code != 403:
                raise
        await client.patch(Node, node_name, {"spec": {"unschedulable": True}})
        await client.patch(Node, node_name, _left(now), subresource="status", kind="strategic")
        return f"is cordoned; an administrator removes it: orchctl delete node {node_name}"
    except ApiError as error:
        if error.code == 404:
            return "is not known to the cluster"
        raise
    finally:
        await transport.close()


def _left(now: datetime) -> dict[str, object]:
    """The patch by which a node is not Ready any more; an agent that runs takes it back."""
    at = format_time(now)
    ready = NodeCondition(
        type=_READY,
        status="False",
        reason="NodeLeft",
        message="the machine left the cluster by 'nodeagent leave'",
        lastHeartbeatTime=at,
        lastTransitionTime=at,
    )
    return {"status": {"conditions": [ready.to_wire()]}}


async def _own_node(config: ClientConfig, name: str) -> None:
    transport = Transport(config, timeout_s=_TIMEOUT_S)
    try:
        await ApiClient(transport).find(Node, name)
    finally:
        await transport.close()


def remove_files(place: Place) -> list[Path]:
    """Remove what joining made; returns what was there. Only regular files go."""
    gone = []
    for path in place.own_files():
        if path.is_file() and not path.is_symlink():
            path.unlink(missing_ok=True)
            gone.append(path)
    return gone
