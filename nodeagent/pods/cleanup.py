"""Removes what a pod leaves on the host once the runtime holds nothing of it any more."""

from __future__ import annotations

import asyncio
import os
import shutil

from nodeagent.pods import plan
from nodeagent.pods.cgroups import CgroupError
from nodeagent.pods.services import PodServices
from nodeagent.pods.troubles import StepFailed
from nodeagent.pods.volumes import VolumeError


async def remove_traces(uid: str, services: PodServices) -> None:
    """Volumes, cgroups and logs; StepFailed names what would not go.

    The pod's directory goes last: by it the next agent knows that something is left.
    """
    try:
        await services.cgroups.remove(uid)
        await asyncio.to_thread(_remove_logs, services.settings.pod_logs_dir, uid)
        await services.volumes.remove(uid)
    except (VolumeError, CgroupError, OSError) as error:
        raise StepFailed(plan.SANDBOX, "FailedCleanup", str(error)) from error


async def exists(path: str) -> bool:
    return await asyncio.to_thread(os.path.exists, path)


def _remove_logs(pod_logs_dir: str, uid: str) -> None:
    """Found by its ending, so that a pod whose name nobody knows any more leaves none either."""
    try:
        entries = os.listdir(pod_logs_dir)
    except FileNotFoundError:
        return
    for entry in entries:
        if uid and entry.endswith(f"_{uid}"):
            shutil.rmtree(os.path.join(pod_logs_dir, entry))
