"""Plugins that know registries' passwords: real programs, which note what they are asked."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nodeagent.pods.images.plugins import API_VERSION, Plugin

_PROGRAM = """#!{python}
import json, os, sys
asked = sys.stdin.read()
with open({log!r}, "a") as log:
    log.write(asked.strip() + "\\n")
{body}
"""


def answering(auth: Any, *, kind: str = "Image", **more: Any) -> str:
    """The text of a program that answers so."""
    answer = {
        "apiVersion": API_VERSION,
        "kind": "CredentialProviderResponse",
        "cacheKeyType": kind,
        "auth": auth,
        **more,
    }
    return f"print({json.dumps(answer)!r})"


def program(
    path: Path,
    body: str,
    *patterns: str,
    keep_s: float = 60.0,
    timeout_s: float = 20.0,
    arguments: tuple[str, ...] = (),
    variables: Mapping[str, str] = {},
) -> Plugin:
    """A plugin whose program runs `body`; `asked` reads what it was asked."""
    path.write_text(_PROGRAM.format(python=sys.executable, log=str(_log(path)), body=body))
    path.chmod(0o755)
    places = patterns or ("*.example.com",)
    return Plugin(path.name, str(path), places, keep_s, arguments, variables, timeout_s)


def asked(plugin: Plugin) -> list[Any]:
    """The requests so far."""
    log = _log(Path(plugin.program))
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def _log(path: Path) -> Path:
    return path.with_name(f"{path.name}.asked")
