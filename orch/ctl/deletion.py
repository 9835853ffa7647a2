"""Asking for an object's deletion, and waiting until it is gone."""

from __future__ import annotations

import asyncio

from orch.ctl.api import Api
from orch.ctl.failures import CommandFailed
from orch.wire import raw

_POLL_S = 0.2


async def ask(
    api: Api,
    path: str,
    *,
    grace_s: int | None = None,
    propagation: str = "Background",
    server_dry_run: bool = False,
) -> str:
    """Ask for the deletion of the object at a path; the uid to wait for."""
    body: dict[str, object] = {"propagationPolicy": propagation}
    if grace_s is not None and grace_s >= 0:  # below, kubectl too leaves it to the object
        body["gracePeriodSeconds"] = grace_s
    params = {"dryRun": "All"} if server_dry_run else None
    answer = await api.send("DELETE", path, body, params=params)
    return raw.text(answer, "details", "uid") or raw.text(answer, "metadata", "uid")


async def wait_gone(api: Api, path: str, uid: str, shown: str, *, timeout_s: float) -> None:
    """Until the object of this uid is gone, or CommandFailed after a time (0 waits for ever)."""
    try:
        async with asyncio.timeout(timeout_s or None):
            while True:
                if await _uid(api, path) != uid:
                    return
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        raise CommandFailed(
            f"{shown} is still there after {timeout_s:g} s: it waits for its containers or its "
            "finalizers, 'orchctl get -o yaml' shows which"
        ) from None


async def _uid(api: Api, path: str) -> str:
    """The uid of the object at a path; another than any when there is none."""
    found = await api.find(path)
    return raw.text(found, "metadata", "uid") if found is not None else "gone"
