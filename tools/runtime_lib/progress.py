"""The output of the runtime tool: progress on standard error, an error line at the end.

Standard output is reserved for results (an endpoint, a JSON document), so that a shell or a test
can read them without parsing prose.
"""

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

_STARTED_S = time.monotonic()


class RuntimeToolError(Exception):
    """Something the caller has to know about; its text names what is missing and what to do."""


def say(text: str) -> None:
    """Print one progress line with the seconds since the tool started."""
    print(f"[{time.monotonic() - _STARTED_S:6.2f}s] {text}", file=sys.stderr, flush=True)


def run(
    command: Sequence[str],
    *,
    timeout_s: float = 60,
    env: Mapping[str, str] | None = None,
    given: bytes = b"",
    cwd: Path | None = None,
) -> str:
    """Run a command to its end with `given` as its input; return what it wrote to its output.

    Raises RuntimeToolError with the end of its standard error when it fails, is missing, or takes
    longer than `timeout_s` seconds.
    """
    shown = f"{command[0]} … {command[-1]}"
    try:
        done = subprocess.run(
            command, input=given, capture_output=True, timeout=timeout_s, env=env, cwd=cwd
        )
    except FileNotFoundError as error:
        raise RuntimeToolError(f"{command[0]} is not installed on this machine") from error
    except subprocess.TimeoutExpired as error:
        raise RuntimeToolError(f"`{shown}` did not end within {timeout_s:.0f} s") from error
    if done.returncode != 0:
        told = done.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
        raise RuntimeToolError(
            f"`{shown}` failed with exit code {done.returncode}: {' | '.join(told[-3:])}"
        )
    return done.stdout.decode(errors="replace")
