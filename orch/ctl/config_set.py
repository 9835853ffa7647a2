"""`orchctl config set-cluster|set-credentials|set-context|set|unset`: change the kubeconfig.

The connection options every command takes (`--server`, `--token`, …) are here what is written.
"""

from __future__ import annotations

import argparse
import base64
import binascii
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orch.client.kubeconfig import SECTIONS
from orch.ctl import config_file
from orch.ctl.commands import Verb
from orch.ctl.config_file import FILES, Data
from orch.ctl.failures import CommandFailed, WrongUsage, did_you_mean, visible

_CLUSTER = ("server", "certificate-authority", "tls-server-name", "insecure-skip-tls-verify")
_USER = ("token", "username", "password", "client-certificate", "client-key")
_CONTEXT = ("cluster", "user", "namespace")
_INSECURE = "insecure-skip-tls-verify"
_DATA = tuple(f"{name}-data" for name in FILES)
_FIELDS = {
    "clusters": (*_CLUSTER, "certificate-authority-data", "proxy-url", "disable-compression"),
    "users": (*_USER, "tokenFile", "client-certificate-data", "client-key-data"),
    "contexts": _CONTEXT,
}
_FLAGS = (_INSECURE, "disable-compression")
_SECRETS = ("token", "tokenFile", "username", "password")


def _entry_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of the entry")
    parser.add_argument(
        "--embed-certs", action="store_true", help="keep the content of files, not their paths"
    )


def _context_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", default="", metavar="NAME", help="name of the context")
    parser.add_argument("--current", action="store_true", help="the context in use")


def _set_cluster(args: argparse.Namespace) -> int:
    wanted = _given(args, _CLUSTER)
    authority = "certificate-authority"
    if wanted.get(_INSECURE) and authority in wanted:
        raise WrongUsage(f"--{_INSECURE} and --{authority} exclude each other: give one of them")
    if wanted.get(_INSECURE):
        unset: tuple[str, ...] = (authority, f"{authority}-data")
    else:
        unset = (_INSECURE,) if authority in wanted or _INSECURE in wanted else ()
    given = {field: value for field, value in wanted.items() if value}
    return _set_entry(args, "clusters", args.name, given, unset)


def _set_credentials(args: argparse.Namespace) -> int:
    if args.token and (args.username or args.password):
        raise WrongUsage("--token and --username exclude each other: give one of them")
    wanted = _given(args, _USER)
    unset = _SECRETS if args.token or args.username else ()
    return _set_entry(args, "users", args.name, wanted, unset)


def _set_context(args: argparse.Namespace) -> int:
    if bool(args.name) == args.current:
        raise WrongUsage("say which context: either NAME or --current")
    name = args.name or str(config_file.read(args).get("current-context") or "")
    if not name:
        raise CommandFailed("no context is in use: name one")
    return _set_entry(args, "contexts", name, _given(args, _CONTEXT))


def _given(args: argparse.Namespace, fields: tuple[str, ...]) -> Data:
    found = {field: getattr(args, field.replace("-", "_")) for field in fields}
    return {field: value for field, value in found.items() if value not in ("", None)}


def _set_entry(
    args: argparse.Namespace, section: str, name: str, wanted: Data, unset: Sequence[str] = ()
) -> int:
    """Set the fields wanted, in the place of those to unset; the rest of the entry stays."""
    path, data = config_file.opened(args, section, name)
    known = name in config_file.names(data, section)
    fields = config_file.entry(data, section, name) if known else {}
    for field in unset:
        fields.pop(field, None)
    for field, value in wanted.items():
        _put_field(fields, field, value, embed=getattr(args, "embed_certs", False))
    config_file.put(data, section, name, fields)
    config_file.write(path, data)
    word = "modified" if known else "created"
    one = {"clusters": "Cluster", "users": "User", "contexts": "Context"}[section]
    print(visible(f'{one} "{name}" {word}.' if section == "contexts" else f'{one} "{name}" set.'))
    return 0


def _put_field(fields: Data, field: str, value: Any, *, embed: bool) -> None:
    """Set a field; a file's path absolute, or with `embed` its content in the -data field."""
    if field not in FILES:
        fields[field] = value
        return
    if embed:
        config_file.embed(fields, field, value)
        return
    fields.pop(f"{field}-data", None)
    fields[field] = str(Path(value).absolute())


def _set_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("property", metavar="PROPERTY", help="section.NAME.field, current-context")
    parser.add_argument("value", metavar="VALUE", help="what it becomes")
    parser.add_argument(
        "--set-raw-bytes", action="store_true", help="VALUE is not base64, as of a -data field"
    )


def _unset_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("property", metavar="PROPERTY", help="section.NAME[.field]")


def _set(args: argparse.Namespace) -> int:
    section, name, field = _parts(args.property)
    path, data = config_file.opened(args, section, name)
    if not section:
        data[args.property] = args.value
    elif not field:
        raise WrongUsage(
            f"{args.property!r} names no field: write {section}.{name or 'NAME'}.field"
        )
    else:
        known = name in config_file.names(data, section)
        fields = config_file.entry(data, section, name) if known else {}
        fields[field] = _value(section, field, args)
        config_file.put(data, section, name, fields)
    config_file.write(path, data)
    print(visible(f'Property "{args.property}" set.'))
    return 0


def _value(section: str, field: str, args: argparse.Namespace) -> str | bool:
    """What a field becomes; WrongUsage for a field that there is not, or a value it cannot have."""
    known = _FIELDS[section]
    if field not in known:
        hint = did_you_mean(field, known)
        raise WrongUsage(f"{section} have no field {field!r}{hint}: use {', '.join(known)}")
    value = str(args.value)
    if field in _FLAGS:
        if value not in ("true", "false"):
            raise WrongUsage(f"{field} is true or false, not {value!r}")
        return value == "true"
    if field in _DATA and args.set_raw_bytes:
        return base64.b64encode(value.encode()).decode()
    if field in _DATA:
        try:
            base64.b64decode(value, validate=True)
        except binascii.Error:
            raise WrongUsage(f"{field} is base64: encode it, or say --set-raw-bytes") from None
    return value


def _unset(args: argparse.Namespace) -> int:
    section, name, field = _parts(args.property)
    path, data = config_file.opened(args, section, name)
    if not section:
        data.pop(args.property, None)
    elif not name:
        data[section] = []
    elif not field:
        config_file.drop(data, section, name)
    else:
        fields = config_file.entry(data, section, name)
        fields.pop(field, None)
    config_file.write(path, data)
    print(visible(f'Property "{args.property}" unset.'))
    return 0


def _parts(text: str) -> tuple[str, str, str]:
    """(section, name, field) of a property; ("", "", "") for current-context. WrongUsage."""
    if text == "current-context":
        return "", "", ""
    section, _, rest = text.partition(".")
    if section not in SECTIONS:
        known = ", ".join((*SECTIONS, "current-context"))
        raise WrongUsage(f"{text!r} is no property: it begins with one of {known}")
    name, dot, field = rest.rpartition(".")  # names may hold dots, fields do not
    return (section, name, field) if dot else (section, rest, "")


SET_CLUSTER = Verb(
    _entry_arguments, _set_cluster,
    "orchctl config set-cluster lab --server https://10.0.0.1:6443 --certificate-authority ca.crt",
)  # fmt: skip
SET_CREDENTIALS = Verb(
    _entry_arguments, _set_credentials,
    "orchctl config set-credentials jane --client-certificate jane.crt --client-key jane.key "
    "--embed-certs",
)  # fmt: skip
SET_CONTEXT = Verb(
    _context_arguments, _set_context,
    "orchctl config set-context lab --cluster lab --user jane --namespace shop\n"
    "orchctl config set-context --current --namespace shop",
)  # fmt: skip
SET = Verb(_set_arguments, _set, "orchctl config set contexts.lab.namespace shop")
UNSET = Verb(_unset_arguments, _unset, "orchctl config unset users.jane.token")
