"""`orchctl config view`: the kubeconfig in use, without its secrets."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from orch.component import yamlfile
from orch.ctl import options, printing
from orch.ctl.failures import CommandFailed

_REDACTED = "REDACTED"
_OMITTED = "DATA+OMITTED"
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
    parser.add_argument("action", choices=("view",), help="what to do")
    parser.add_argument("--raw", action="store_true", help="show secrets too")
    parser.add_argument("-o", "--output", choices=("json", "yaml"), default="yaml", help="form")


def run(args: argparse.Namespace) -> int:
    path = options.kubeconfig_path(args)
    if not path:
        raise CommandFailed("there is no kubeconfig: name one with --kubeconfig or $KUBECONFIG")
    try:
        value = yamlfile.read_yaml_file(Path(path)).value
    except OSError as error:
        raise CommandFailed(f"cannot read the kubeconfig {path}: {error.strerror}") from None
    except yamlfile.YamlError as error:
        raise CommandFailed(f"the kubeconfig does not parse: {error}") from None
    shown = value if args.raw else redacted(value)
    print(printing.as_json(shown) if args.output == "json" else printing.as_yaml(shown))
    return 0


def redacted(value: Any) -> Any:
    """The same data with a note in the place of every secret."""
    if isinstance(value, dict):
        return {k: _SECRETS[k] if k in _SECRETS and v else redacted(v) for k, v in value.items()}
    return [redacted(item) for item in value] if isinstance(value, list) else value
