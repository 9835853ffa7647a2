"""What probes said last of running containers, kept on disk for the next agent.

An agent that restarts must not take a serving pod out of service, nor wait again for a start that
was long ago; with static pods and no API server nobody else remembers. One small file per pod,
gone with the pod's directory; without it, or where it cannot be read, probes begin anew.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

log = logging.getLogger(__name__)

_FILE = "probes.json"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Of one running container."""

    started: bool
    ready: bool


class VerdictFiles:
    """`root_dir` is the agent's."""

    def __init__(self, root_dir: str) -> None:
        self._pods = Path(root_dir) / "pods"
        self._trouble = ""  # why the last verdicts were not kept

    async def load(self, uid: str) -> Mapping[str, Verdict]:
        """Container id → verdict; empty when nothing is known."""
        return await asyncio.to_thread(self._load, uid)

    async def save(self, uid: str, verdicts: Mapping[str, Verdict]) -> None:
        """Replace what is known of a pod; not being able to is logged when it begins."""
        await asyncio.to_thread(self._save, uid, verdicts)

    def _load(self, uid: str) -> Mapping[str, Verdict]:
        try:
            data = json.loads((self._pods / uid / _FILE).read_text())
            return {
                key: Verdict(one["started"] is True, one["ready"] is True)
                for key, one in data.items()
            }
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}

    def _save(self, uid: str, verdicts: Mapping[str, Verdict]) -> None:
        data = {key: {"started": v.started, "ready": v.ready} for key, v in verdicts.items()}
        path = self._pods / uid / _FILE
        unfinished = path.with_suffix(".new")
        try:
            unfinished.write_text(json.dumps(data))  # its directory is the pod's: gone, it is over
            unfinished.replace(path)
        except FileNotFoundError:
            return
        except OSError as error:
            trouble = error.strerror or str(error)
            if trouble != self._trouble:
                log.warning(
                    "what probes say is not kept for the next agent: cannot write %s: %s",
                    path,
                    trouble,
                )
            self._trouble = trouble
        else:
            self._trouble = ""
