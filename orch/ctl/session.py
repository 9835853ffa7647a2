"""From the options of a command to a connection, and from an asynchronous command to its end."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable

from orch.client.kubeconfig import ClientConfig
from orch.client.transport import Transport
from orch.ctl import options
from orch.ctl.api import Api

Action = Callable[[Api, argparse.Namespace], Awaitable[int]]


def run(args: argparse.Namespace, action: Action) -> int:
    """Run an action against the server that the options name; its result is the exit code."""
    return asyncio.run(_run(args, action, options.client_config(args)))


async def _run(args: argparse.Namespace, action: Action, config: ClientConfig) -> int:
    transport = Transport(
        config,
        timeout_s=args.request_timeout,
        user_agent="orchctl",
        headers=options.impersonation_headers(args),
    )
    namespace = args.namespace or config.namespace or "default"
    try:
        return await action(Api(transport, namespace=namespace, verbosity=args.verbosity), args)
    finally:
        await transport.close()
