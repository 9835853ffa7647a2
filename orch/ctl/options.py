"""The options every command takes: which server, as whom, how long to wait, how much to log.

They may stand before or after the command word. `client_config` turns them and the kubeconfig
into one ClientConfig.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from orch.ctl.failures import CommandFailed, WrongUsage

if TYPE_CHECKING:
    from orch.client.kubeconfig import ClientConfig

DEFAULT_FILES = ("~/.orch/config", "~/.kube/config")
_HEADER_SAFE = "!#$&'*+-.^_`|~"  # the characters of a header's name, without the %


def seconds(text: str) -> float:
    """`30s`, `2m`, or a plain number of seconds."""
    from orch.wire.times import parse_duration

    try:
        return float(text) if text.isdecimal() else parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _pair(text: str) -> tuple[str, str]:
    key, found, value = text.partition("=")
    if not found or not key:
        raise argparse.ArgumentTypeError(f"{text!r} is not key=value")
    return key, value


# Names, help and settings of argparse; without a `default` it is "".
OPTIONS: tuple[tuple[tuple[str, ...], str, Mapping[str, Any]], ...] = (
    (("--kubeconfig",), "file with servers and credentials (default $KUBECONFIG, then "
     "~/.orch/config, ~/.kube/config)", {"metavar": "FILE"}),
    (("--context",), "context of the kubeconfig to use", {"metavar": "NAME"}),
    (("--cluster",), "cluster entry of the kubeconfig to use", {"metavar": "NAME"}),
    (("--user",), "user entry of the kubeconfig to use", {"metavar": "NAME"}),
    (("-s", "--server"), "address of the API server", {"metavar": "URL"}),
    (("--token",), "bearer token", {}),
    (("--username",), "user name for basic authentication", {"metavar": "NAME"}),
    (("--password",), "password for basic authentication", {}),
    (("--client-certificate",), "client certificate", {"metavar": "FILE"}),
    (("--client-key",), "key of the client certificate", {"metavar": "FILE"}),
    (("--certificate-authority",), "authority of the server's certificate", {"metavar": "FILE"}),
    (("--tls-server-name",), "name to expect in the server's certificate", {"metavar": "NAME"}),
    (("--insecure-skip-tls-verify",), "do not verify the server's certificate (unsafe)",
     {"action": "store_true", "default": None}),  # neither set nor cleared
    (("--as",), "act as this user", {"dest": "as_user", "metavar": "USER"}),
    (("--as-group",), "act as a member of this group (repeatable)",
     {"action": "append", "metavar": "GROUP", "default": []}),
    (("--as-uid",), "act with this user id", {"metavar": "UID"}),
    (("--as-user-extra",), "act with this extra value (repeatable)",
     {"action": "append", "type": _pair, "metavar": "KEY=VALUE", "default": []}),
    (("--request-timeout",), "longest wait for one answer: 1s, 2m, 3h; 0 waits forever",
     {"type": seconds, "metavar": "TIME", "default": 0.0}),
    (("-n", "--namespace"), "namespace (default: the context's, then 'default')",
     {"metavar": "NAME"}),
    (("-v",), "log each request to standard error",
     {"action": "count", "dest": "verbosity", "default": 0}),
)  # fmt: skip


def client_config(args: argparse.Namespace) -> ClientConfig:
    """The server and credentials that the options and the kubeconfig give together."""
    import dataclasses  # slow to import, and not needed by a command that asks no server

    from orch.client.kubeconfig import ClientConfig, load_kubeconfig

    paths = kubeconfig_paths(args)
    if args.server and not args.kubeconfig:  # $KUBECONFIG may name what is not there
        paths = [path for path in paths if os.path.exists(path)]
    if paths:
        config = load_kubeconfig(paths, args.context or None, cluster=args.cluster, user=args.user)
    elif args.server:
        config = ClientConfig(args.server)
    else:
        raise CommandFailed(
            "there is no kubeconfig: name one with --kubeconfig or $KUBECONFIG, or a server with "
            f"--server (looked for {' and '.join(DEFAULT_FILES)})"
        )
    return dataclasses.replace(config, **_overrides(args))


def kubeconfig_paths(args: argparse.Namespace) -> list[str]:
    """The files to read as one: the one asked for, those of $KUBECONFIG, or a default.

    [] when there is none. Of $KUBECONFIG those that exist, or if none does the first.
    """
    if args.kubeconfig:
        return [str(args.kubeconfig)]
    listed = [name for name in os.environ.get("KUBECONFIG", "").split(os.pathsep) if name]
    if listed:
        return [name for name in listed if os.path.exists(name)] or listed[:1]
    defaults = map(os.path.expanduser, DEFAULT_FILES)
    return [name for name in defaults if os.path.exists(name)][:1]


def _overrides(args: argparse.Namespace) -> dict[str, Any]:
    """The fields that options set; each also empties the field it replaces."""
    changes: dict[str, Any] = {}
    if args.server:
        changes["server"] = _server_url(args.server)
    changes |= _secrets(args)
    if args.client_certificate:
        changes |= {"cert_file": args.client_certificate, "cert_data": b""}
    if args.client_key:
        changes |= {"key_file": args.client_key, "key_data": b""}
    if args.certificate_authority:
        changes |= {"ca_file": args.certificate_authority, "ca_data": b"", "insecure": False}
    if args.tls_server_name:
        changes["tls_server_name"] = args.tls_server_name
    if args.insecure_skip_tls_verify is not None:
        changes["insecure"] = args.insecure_skip_tls_verify
    return changes


def _secrets(args: argparse.Namespace) -> dict[str, Any]:
    """The token, or name and password, of the options: they replace all that the file has.

    Its certificate too: a server that sees one ignores the rest.
    """
    if args.token and (args.username or args.password):
        raise WrongUsage("--token and --username exclude each other: give one of them")
    if args.password and not args.username:
        raise WrongUsage("--password needs --username")
    if not args.token and not args.username:
        return {}
    given = {"token": args.token, "username": args.username, "password": args.password}
    emptied = {"cert_file": "", "cert_data": b"", "key_file": "", "key_data": b""}
    return {**given, "token_file": "", **emptied}


def _server_url(text: str) -> str:
    url = text if "://" in text else f"https://{text}"
    if "@" in url.partition("://")[2].partition("/")[0]:  # not quoted: it is a secret
        raise WrongUsage("--server holds credentials: use --username and --password for them")
    if not url.startswith(("https://", "http://")):
        raise WrongUsage(f"--server {text!r} is not an http(s) URL")
    return url.rstrip("/")


def impersonation_headers(args: argparse.Namespace) -> list[tuple[str, str]]:
    """The headers that ask the server to act as someone else."""
    from urllib.parse import quote  # slow to import, and not needed by most commands

    headers = [("Impersonate-User", args.as_user)] if args.as_user else []
    headers += [("Impersonate-Group", group) for group in args.as_group]
    if args.as_uid:
        headers.append(("Impersonate-Uid", args.as_uid))
    for key, value in args.as_user_extra:
        headers.append((f"Impersonate-Extra-{quote(key, safe=_HEADER_SAFE)}", value))
    if headers and not args.as_user:
        raise WrongUsage("--as-group, --as-uid and --as-user-extra need --as: name a user")
    return headers
