"""`orchctl config get-clusters|get-users|delete-cluster|delete-user`."""

from __future__ import annotations

import argparse
from functools import partial

from orch.client.kubeconfig import SECTIONS
from orch.ctl import config_file
from orch.ctl.commands import Verb
from orch.ctl.failures import visible


def _no_arguments(parser: argparse.ArgumentParser) -> None:
    """None beyond the global options."""


def _list(section: str, args: argparse.Namespace) -> int:
    names = sorted(config_file.names(config_file.read(args), section))
    print("\n".join(["NAME", *map(visible, names)]))
    return 0


def _name_argument(section: str, parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help=f"name of the {SECTIONS[section]} entry")


def _delete(section: str, args: argparse.Namespace) -> int:
    config_file.entry(config_file.read(args), section, args.name)
    path, data = config_file.opened(args, section, args.name)
    config_file.drop(data, section, args.name)
    config_file.write(path, data)
    print(visible(f"deleted {SECTIONS[section]} {args.name} from {path}"))
    return 0


def _lister(section: str, example: str) -> Verb:
    return Verb(_no_arguments, partial(_list, section), example)


def _deleter(section: str, example: str) -> Verb:
    return Verb(partial(_name_argument, section), partial(_delete, section), example)


GET_CLUSTERS = _lister("clusters", "orchctl config get-clusters")
GET_USERS = _lister("users", "orchctl config get-users")
DELETE_CLUSTER = _deleter("clusters", "orchctl config delete-cluster old")
DELETE_USER = _deleter("users", "orchctl config delete-user jane")
