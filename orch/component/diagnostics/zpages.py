"""`/statusz`, `/flagz` and `/configz`: the running version, its uptime, and its settings.

The text forms are for people; the delimiter of /statusz is random so that no program parses it, the
lines of /flagz are `name=value`. The structured forms are records of config.orch.io/v1alpha1.
Secrets show as CLASSIFIED because of their type (`secret.Secret`). Authorization is the programs'
own.
"""

from __future__ import annotations

import argparse
import html
import platform
import secrets
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

import orjson
from aiohttp import web

from orch.component.flags.features import Features
from orch.component.flags.stability import CURRENT, Release, oldest_compatible, parse_release
from orch.component.http import negotiation
from orch.component.http.responses import render_status, render_text
from orch.component.process import clock, system
from orch.component.process.clock import Now
from orch.component.terminal import visible
from orch.wire import names as wire_names
from orch.wire import times
from orch.wire.errors import ApiError

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_DELIMITERS = (":", ": ", "=", " ")
_WARNING = "Warning: this page is for people who debug; its form changes from one {} to the next."
_STRUCTURED_SINCE = parse_release("1.35")
# The read-only pages that /statusz lists; a program's other paths are its interface.
_PAGES = ("configz", "debug", "flagz", "healthz", "livez", "logs", "metrics", "readyz", "version")
_TERMINALS = ("curl/", "Wget/", "Mozilla/")


class ZPages:
    """The pages of one program; `flags` are all its flags with their values as text."""

    def __init__(
        self,
        name: str,
        flags: Mapping[str, str],
        *,
        start_s: float | None = None,
        now: Now = clock.utc_now,
        emulated: Release = CURRENT,
    ) -> None:
        self.name = name
        self._emulated = emulated
        self._flags = dict(sorted(flags.items()))
        start_s = system.process_start_s() if start_s is None else start_s
        self._started = datetime.fromtimestamp(start_s, UTC)
        self._now = now

    def routes(self, features: Features) -> list[web.RouteDef]:
        """The routes of the enabled pages."""
        routes = []
        if features.enabled("ComponentFlagz"):
            routes.append(web.get("/flagz", self.flagz))
        if features.enabled("ComponentStatusz"):
            routes.append(web.get("/statusz", self.statusz))
        return routes

    async def statusz(self, request: web.Request) -> web.Response:
        paths = debugging_paths(request.app)
        text, fields = partial(self._status_text, paths), partial(self._status_fields, paths)
        return self._render(request, "Statusz", text, fields)

    async def flagz(self, request: web.Request) -> web.Response:
        return self._render(request, "Flagz", self._flags_page, lambda: {"flags": self._flags})

    def _render(
        self,
        request: web.Request,
        kind: str,
        text: Callable[[], str],
        fields: Callable[[], dict[str, Any]],
    ) -> web.Response:
        structured = self._emulated >= _STRUCTURED_SINCE
        form = negotiation.choose(request.headers.get("Accept", ""), kind, structured=structured)
        if form == "text":
            return render_text(text())
        if form == "json":
            return self._record(request, kind, fields())
        # A Status record even where a program's other errors are text.
        types = negotiation.accepted_types(kind, structured=structured)
        message = f"only the following media types are accepted: {types}"
        return render_status(ApiError(406, "NotAcceptable", message))

    def _record(self, request: web.Request, kind: str, fields: dict[str, Any]) -> web.Response:
        metadata = {"name": self.name}
        record = {"kind": kind, "apiVersion": negotiation.API_VERSION, "metadata": metadata}
        agent = request.headers.get("User-Agent", "")
        pretty = agent.startswith(_TERMINALS) or request.query.get("pretty") in ("1", "true")
        body = orjson.dumps({**record, **fields}, option=orjson.OPT_INDENT_2 if pretty else None)
        return web.Response(body=body, headers={"Content-Type": negotiation.structured_type(kind)})

    def _uptime_s(self) -> int:
        return max(int((self._now() - self._started).total_seconds()), 0)

    def _status_fields(self, paths: list[str]) -> dict[str, Any]:
        return {
            "startTime": times.format_time(self._started),
            "uptimeSeconds": self._uptime_s(),
            "goVersion": _runtime(),
            "binaryVersion": wire_names.VERSION,
            "emulationVersion": str(self._emulated),
            "minimumCompatibilityVersion": str(oldest_compatible(self._emulated)),
            "paths": paths,
        }

    def _status_text(self, paths: list[str]) -> str:
        minutes, seconds = divmod(self._uptime_s(), 60)
        hours, minutes = divmod(minutes, 60)
        lines = {
            "Started": self._started.strftime("%a %b %e %H:%M:%S UTC %Y"),
            "Up": f"{hours} hr {minutes:02} min {seconds:02} sec",
            "Go version": _runtime(),
            "Binary version": wire_names.VERSION,
            "Emulation version": str(self._emulated),
            "Paths": " ".join(paths),
        }
        delimiter = secrets.choice(_DELIMITERS)
        body = "".join(f"{key}{delimiter} {_escaped(text)}\n" for key, text in lines.items())
        return f"\n{self.name} statusz\n{_WARNING.format('request')}\n\n{body}"

    def _flags_page(self) -> str:
        lines = "".join(f"{key}={visible(text)}\n" for key, text in self._flags.items())
        return f"\n{self.name} flagz\n{_WARNING.format('release')}\n\n{lines}"


def configz(name: str, record: Callable[[], Mapping[str, Any]]) -> web.RouteDef:
    """The route that shows the effective configuration under `name`; secrets mask themselves."""

    async def handle(_request: web.Request) -> web.Response:
        headers = {"Content-Type": "application/json", "X-Content-Type-Options": "nosniff"}
        return web.Response(body=orjson.dumps({name: record()}), headers=headers)

    return web.get("/configz", handle)


def flags_of(parser: argparse.ArgumentParser, values: argparse.Namespace) -> dict[str, str]:
    """Every flag of a parser by its long name, with its value as text, "" for None."""
    flags = {}
    for action in parser._actions:
        names = [name[2:] for name in action.option_strings if name.startswith("--")]
        if names and action.default != argparse.SUPPRESS:  # not --help, --version
            flags[names[0]] = _flag_text(getattr(values, action.dest, None))
    return flags


def debugging_paths(app: web.Application) -> list[str]:
    """The program's read-only pages, without /statusz itself."""
    first = {resource.canonical.split("/")[1] for resource in app.router.resources()}
    return [f"/{name}" for name in _PAGES if name in first]


def _flag_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return ",".join(f"{key}={_flag_text(item)}" for key, item in sorted(value.items()))
    if isinstance(value, list | tuple):
        return ",".join(map(_flag_text, value))
    return str(value)


def _runtime() -> str:
    return f"python{platform.python_version()}"


def _escaped(text: str) -> str:
    return html.escape(text).replace("+", "&#43;")
