"""`nodeagent checkpoint create`: request a checkpoint from the agent of this node.

Over HTTPS, with the client certificate or token of `--kubeconfig`, which needs permission to
`create` `nodes/checkpoint`. The agent's certificate must be signed by the kubeconfig's CA; the
self-signed certificate that an agent creates is pinned.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

from nodeagent.commands import config as config_command
from nodeagent.config import options
from nodeagent.config.options import Options
from nodeagent.config.types import NodeAgentConfiguration
from orch.client.answers import Response, TransportError
from orch.client.kubeconfig import ClientConfig, load_kubeconfig
from orch.client.transport import Transport
from orch.component.process.daemon import SetupError

_CONNECT_S = 10.0
_UNSPECIFIED = ("", "0.0.0.0", "::")  # noqa: S104 — compared with, not bound to


def create(args: argparse.Namespace) -> int:
    """Print the path of the archive; SetupError says why there is none."""
    namespace, slash, pod = args.target.partition("/")
    if not slash or not namespace or not pod:
        raise SetupError(f"{args.target!r} is not NAMESPACE/POD")
    if args.timeout < 0:
        raise SetupError("--timeout is a number of seconds, 0 or more")
    given, config = options.options_of(args), config_command.load(args)
    client = client_config(given, config)
    wait_s = max(args.timeout, config.runtimeRequestTimeout) + _CONNECT_S
    items = asyncio.run(_create(client, namespace, pod, args.container, args.timeout, wait_s))
    if args.output == "json":
        sys.stdout.write(json.dumps({"items": items}) + "\n")
    else:
        sys.stdout.write("".join(f"{item}\n" for item in items))
    return 0


def client_config(given: Options, config: NodeAgentConfiguration) -> ClientConfig:
    """How to reach the agent with these options. SetupError without credentials."""
    if not given.kubeconfig:
        raise SetupError(
            "the agent requires credentials: give --kubeconfig with a client certificate or a "
            "token that may create nodes/checkpoint"
        )
    own, _ = given.certificate_files(config)
    host = "127.0.0.1" if config.address in _UNSPECIFIED else config.address
    server = f"https://{f'[{host}]' if ':' in host else host}:{config.port}"
    client = dataclasses.replace(load_kubeconfig(given.kubeconfig), server=server)
    if config.tlsCertFile or not Path(own).exists():
        return client
    return dataclasses.replace(client, ca_file=own, ca_data=b"", tls_server_name="localhost")


async def _create(
    client: ClientConfig, namespace: str, pod: str, container: str, timeout_s: int, wait_s: float
) -> list[str]:
    transport = Transport(client, timeout_s=wait_s, user_agent="nodeagent checkpoint")
    try:
        container = container or await _only_container(transport, namespace, pod)
        path = "/".join(quote(part, safe="") for part in (namespace, pod, container))
        params = {"timeout": str(timeout_s)} if timeout_s else None
        answer = await transport.request("POST", f"/checkpoint/{path}", params=params)
    except TransportError as error:
        raise SetupError(f"the agent did not answer: {error}") from None
    finally:
        await transport.close()
    return [str(item) for item in _items(answer)]


async def _only_container(transport: Transport, namespace: str, pod: str) -> str:
    for item in _items(await transport.request("GET", "/pods")):
        meta, spec = item["metadata"], item["spec"]
        if (meta.get("namespace"), meta.get("name")) == (namespace, pod):
            names = [container["name"] for container in spec["containers"]]
            if len(names) == 1:
                return str(names[0])
            raise SetupError(f"the pod has the containers {', '.join(names)}: choose with -c")
    raise SetupError(f"there is no pod {namespace}/{pod} on this node")


def _items(answer: Response) -> list[Any]:
    text = answer.body.decode(errors="replace").strip()
    if answer.status != 200:
        raise SetupError(f"the agent answered {answer.status}: {text or 'without a reason'}")
    try:
        return list(json.loads(text)["items"])
    except (ValueError, KeyError, TypeError):
        raise SetupError(f"the agent's answer is not a list: {text[:200]!r}") from None
