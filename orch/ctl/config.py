"""`orchctl config view`: the kubeconfig in use, without its secrets."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from typing import Any

from orch.client.kubeconfig import SECTIONS
from orch.ctl import config_file, forms
from orch.ctl.failures import CommandFailed
from orch.wire import raw

EXAMPLES = """
orchctl config view
orchctl config view --minify --flatten > portable.conf
orchctl config view --minify -o jsonpath='{.clusters[0].cluster.server}'
"""
_REDACTED = "REDACTED"
_OMITTED = "DATA+OMITTED"
_USERINFO = re.compile(r"(?<=://)[^/?#]*(?=@)")  # of an address: NAME:PASSWORD@HOST
_SECRETS = {
    "token": _REDACTED,
    "password": _REDACTED,
    "client-key-data": _OMITTED,
    "client-certificate-data": _OMITTED,
    "certificate-authority-data": _OMITTED,
    "exec": _REDACTED,
    "auth-provider": _REDACTED,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--raw", action="store_true", help="show secrets too")
    parser.add_argument("--minify", action="store_true", help="only what the context uses")
    parser.add_argument(
        "--flatten", action="store_true", help="what is in files instead of their paths; as --raw"
    )
    forms.add_to(parser, (*forms.DATA, "jsonpath", "jsonpath-file"))


def run(args: argparse.Namespace) -> int:
    value: Any = config_file.read(args, absolute=True)
    if args.minify:
        value = _minified(value, args)
    if args.flatten:
        _flatten(value)
    shown = value if args.raw or args.flatten else redacted(value)
    forms.show(args.output or forms.Form("yaml"), shown)
    return 0


def _flatten(value: Mapping[str, Any]) -> None:
    for section in SECTIONS:
        for name in config_file.names(value, section):
            fields = config_file.entry(value, section, name)
            for field in config_file.FILES:
                if path := raw.text(fields, field):
                    config_file.embed(fields, field, path)


def _minified(value: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    """Only the context in use, and its cluster and user."""
    name = args.context or str(value.get("current-context") or "")
    if not name:
        raise CommandFailed("no context is in use: name one with --context")
    context = config_file.entry(value, "contexts", name)
    kept = {"contexts": name, "clusters": raw.text(context, "cluster"),
            "users": raw.text(context, "user")}  # fmt: skip
    chosen = {
        section: [one for one in value.get(section) or [] if raw.text(one, "name") == wanted]
        for section, wanted in kept.items()
    }
    return {**value, **chosen, "current-context": name}


def redacted(value: Any) -> Any:
    """The same data with a note in the place of every secret."""
    if isinstance(value, dict):
        return {k: _SECRETS[k] if k in _SECRETS and v else redacted(v) for k, v in value.items()}
    if isinstance(value, list):
        return [redacted(item) for item in value]
    return _USERINFO.sub(_REDACTED, value) if isinstance(value, str) else value
