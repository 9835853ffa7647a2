"""`orchctl config view|get-contexts|use-context`: the kubeconfig as data, without its secrets.

Everything in a file but the context in use is kept when it is written, except for comments and the
order of keys.
"""

from __future__ import annotations

import argparse
import base64
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orch.client import kubeconfig
from orch.client.kubeconfig import SECTIONS
from orch.component.process.atomic_file import replace_file
from orch.component.terminal import visible
from orch.ctl import options
from orch.ctl.command_table import Verb
from orch.ctl.failures import CommandFailed, did_you_mean
from orch.ctl.output import formats, printing
from orch.wire import raw

_FILES = ("certificate-authority", "client-certificate", "client-key")  # each may be -data too
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
_HEADER = ("CURRENT", "NAME", "CLUSTER", "AUTHINFO", "NAMESPACE")

Data = dict[str, Any]


def read(args: argparse.Namespace, *, absolute: bool = False) -> Data:
    """The data of all files together, their paths as they are or `absolute`; CommandFailed."""
    paths = options.kubeconfig_paths(args)
    if not any(map(os.path.exists, paths)):
        named = f" {paths[0]}" if paths else ""
        raise CommandFailed(f"there is no kubeconfig{named}: name one with --kubeconfig")
    return kubeconfig.merged([_read_one(path, absolute=absolute) for path in paths])


def _read_one(path: str, *, absolute: bool = False) -> Data:
    if not os.path.exists(path):
        return {"apiVersion": "v1", "kind": "Config"}
    return kubeconfig.read_file(path, absolute=absolute)


def names(data: Mapping[str, Any], section: str) -> list[str]:
    """The names of a section's entries."""
    return [str(entry.get("name")) for entry in raw.records(data, section)]


def _fields(data: Mapping[str, Any], section: str, name: str) -> Data:
    """The fields of an entry; CommandFailed when there is none of that name."""
    for entry in raw.records(data, section):
        if entry.get("name") == name:
            found = entry.get(SECTIONS[section])
            return found if isinstance(found, dict) else {}
    known = names(data, section)
    hint = did_you_mean(name, known) or (f": there are {', '.join(known)}" if known else "")
    raise CommandFailed(f"the kubeconfig has no {SECTIONS[section]} {name!r}{hint}")


def _add_view(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--raw", action="store_true", help="show secrets too")
    parser.add_argument("--minify", action="store_true", help="only what the context uses")
    parser.add_argument("--flatten", action="store_true", help="embed files; implies --raw")
    formats.add_to(parser, formats.DATA)


def _view(args: argparse.Namespace) -> int:
    data = read(args, absolute=True)
    if args.minify:
        data = _minified(data, args)
    if args.flatten:
        _flatten(data)
    shown = data if args.raw or args.flatten else redacted(data)
    formats.show(args.output or formats.Format("yaml"), shown)
    return 0


def _minified(data: Data, args: argparse.Namespace) -> Data:
    """Only the context in use, and its cluster and user."""
    name = args.context or str(data.get("current-context") or "")
    if not name:
        raise CommandFailed("no context is in use: name one with --context")
    context = _fields(data, "contexts", name)
    kept = {"contexts": name, "clusters": raw.text(context, "cluster"),
            "users": raw.text(context, "user")}  # fmt: skip
    entries = {
        section: [entry for entry in raw.records(data, section) if entry.get("name") == wanted]
        for section, wanted in kept.items()
    }
    return {**data, **entries, "current-context": name}


def _flatten(data: Data) -> None:
    """Replace the path of each file by the file's content; CommandFailed."""
    for section in SECTIONS:
        for name in names(data, section):
            fields = _fields(data, section, name)
            for field in _FILES:
                if path := raw.text(fields, field):
                    try:
                        content = Path(path).read_bytes()
                    except OSError as error:
                        raise CommandFailed(f"cannot read {path}: {error.strerror}") from None
                    del fields[field]
                    fields[f"{field}-data"] = base64.b64encode(content).decode()


def redacted(value: Any) -> Any:
    """The same data with a note in place of every secret."""
    if isinstance(value, dict):
        return {k: _SECRETS[k] if k in _SECRETS and v else redacted(v) for k, v in value.items()}
    if isinstance(value, list):
        return [redacted(item) for item in value]
    return _USERINFO.sub(_REDACTED, value) if isinstance(value, str) else value


def _add_get_contexts(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="CONTEXT", help="only these")
    parser.add_argument("-o", "--output", choices=("name",), default="", help="only the names")
    parser.add_argument("--no-headers", action="store_true", help="only the rows")


def _get_contexts(args: argparse.Namespace) -> int:
    data = read(args)
    wanted = args.names or sorted(names(data, "contexts"))
    if args.output:
        print("\n".join(map(visible, wanted)))
        return 0
    current = str(data.get("current-context") or "")
    rows = [] if args.no_headers else [_HEADER]
    for name in wanted:
        context = _fields(data, "contexts", name)
        fields = (raw.text(context, key) for key in ("cluster", "user", "namespace"))
        rows.append(("*" if name == current else "", name, *fields))
    print("\n".join(printing.columns(rows)))
    return 0


def _add_use_context(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="CONTEXT", help="name of the context")


def _use_context(args: argparse.Namespace) -> int:
    _fields(read(args), "contexts", args.name)
    path = options.kubeconfig_paths(args)[0]
    _write(path, {**_read_one(path), "current-context": args.name})
    print(visible(f'Switched to context "{args.name}".'))
    return 0


def _write(path: str, data: Data) -> None:
    """Replace the file in one step, for its owner alone; a link's target, not the link."""
    real = Path(os.path.realpath(path))
    try:
        replace_file(real, f"{printing.as_yaml(data)}\n".encode())
    except OSError as error:
        raise CommandFailed(f"cannot write the kubeconfig {real}: {error.strerror}") from None


VIEW = Verb(
    _add_view, _view,
    "orchctl config view\n"
    "orchctl config view --minify --flatten > portable.conf\n"
    "orchctl config view --minify -o jsonpath='{.clusters[0].cluster.server}'",
)  # fmt: skip
GET_CONTEXTS = Verb(_add_get_contexts, _get_contexts, "orchctl config get-contexts -o name")
USE_CONTEXT = Verb(_add_use_context, _use_context, "orchctl config use-context production")
