"""The table of commands: its words, the module that holds it, and one line on what it does.

`main` imports only the module of the command that runs; completion and the manual read all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

if TYPE_CHECKING:
    import argparse

_NOTHING: Mapping[str, Entry] = MappingProxyType({})


class Command(Protocol):
    """What a command is: a module, or a `Verb` where a module holds several."""

    EXAMPLES: str

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None: ...
    @staticmethod
    def run(args: argparse.Namespace) -> int: ...


class Verb(NamedTuple):
    """One of several commands of a module."""

    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    EXAMPLES: str


class Entry(NamedTuple):
    """A command, or with `below` a word that others follow; `verb` names it in its module."""

    module: str
    text: str
    verb: str = ""
    below: Mapping[str, Entry] = _NOTHING

    def load(self) -> Command:
        """Import the module; the command is the module itself, or its `verb`."""
        module = import_module(f"orch.ctl.{self.module}")
        return cast("Command", getattr(module, self.verb) if self.verb else module)


_AUTH = {
    "can-i": Entry("can_i", "ask whether something is allowed, or with --list what is"),
    "whoami": Entry("whoami", "show as whom the server knows you"),
}
_CONFIG = {
    "view": Entry("config", "show the kubeconfig in use, without its secrets"),
    "get-contexts": Entry("config_contexts", "list the contexts", "GET_CONTEXTS"),
    "current-context": Entry("config_contexts", "show the context in use", "CURRENT_CONTEXT"),
    "use-context": Entry("config_contexts", "use another context", "USE_CONTEXT"),
    "rename-context": Entry("config_contexts", "give a context another name", "RENAME_CONTEXT"),
    "delete-context": Entry("config_contexts", "remove a context", "DELETE_CONTEXT"),
    "get-clusters": Entry("config_entries", "list the cluster entries", "GET_CLUSTERS"),
    "get-users": Entry("config_entries", "list the user entries", "GET_USERS"),
    "delete-cluster": Entry("config_entries", "remove a cluster entry", "DELETE_CLUSTER"),
    "delete-user": Entry("config_entries", "remove a user entry", "DELETE_USER"),
    "set-context": Entry("config_set", "make or change a context", "SET_CONTEXT"),
    "set-cluster": Entry("config_set", "make or change a cluster entry", "SET_CLUSTER"),
    "set-credentials": Entry("config_set", "make or change a user entry", "SET_CREDENTIALS"),
    "set": Entry("config_set", "set one field of the file", "SET"),
    "unset": Entry("config_set", "remove one field of the file", "UNSET"),
}
_NODE = {
    "top": Entry("top", "live table of nodes, pods and containers: CPU, memory, pressure"),
    "summary": Entry("node", "a node's usage and pressure, and its pods'", "SUMMARY"),
    "statusz": Entry("node", "what the agent says of its own build and uptime", "STATUSZ"),
    "flagz": Entry("node", "the flags the agent was started with", "FLAGZ"),
    "configz": Entry("node", "the configuration the agent runs with", "CONFIGZ"),
    "healthz": Entry("node", "whether the agent is healthy", "HEALTHZ"),
}
_CREATE = {
    "namespace": Entry("create_kinds", "create a namespace", "NAMESPACE"),
    "serviceaccount": Entry("create_kinds", "create a service account", "ACCOUNT"),
    "configmap": Entry("create_kinds", "create a config map from values and files", "CONFIG_MAP"),
    "secret": Entry("create_secret", "create a secret from values and files", "SECRET"),
    "token": Entry("create_kinds", "print a token for a service account", "TOKEN"),
    "role": Entry("create_access", "create a role", "ROLE"),
    "clusterrole": Entry("create_access", "create a cluster role", "CLUSTER_ROLE"),
    "rolebinding": Entry("create_access", "grant a role in a namespace", "ROLE_BINDING"),
    "clusterrolebinding": Entry(
        "create_access", "grant a cluster role everywhere", "CLUSTER_ROLE_BINDING"
    ),
}
ALIASES = {  # of the words that follow another
    "ns": "namespace", "sa": "serviceaccount", "cm": "configmap", "use": "use-context",
}  # fmt: skip
COMMANDS: Mapping[str, Entry] = {
    "get": Entry("get", "show objects"),
    "describe": Entry("describe", "show objects in detail, with their events"),
    "events": Entry("events", "show what happened lately"),
    "logs": Entry("logs", "show what a container printed"),
    "create": Entry("create", "create objects from files, or of some kinds from options",
                    below=_CREATE),
    "apply": Entry("apply", "create objects from files, or change them to what the files say"),
    "replace": Entry("replace", "replace objects by those of files"),
    "delete": Entry("delete", "delete objects"),
    "patch": Entry("patch", "change fields of an object"),
    "label": Entry("label", "set and remove labels", "LABEL"),
    "annotate": Entry("label", "set and remove annotations", "ANNOTATE"),
    "wait": Entry("wait", "wait until objects are as they should be"),
    "cordon": Entry("cordon", "mark nodes as not schedulable"),
    "uncordon": Entry("uncordon", "mark nodes as schedulable"),
    "drain": Entry("drain", "move the pods off nodes, for work on the machine"),
    "taint": Entry("taint", "set and remove taints of nodes"),
    "node": Entry("", "ask a node's agent: its usage, its health, its settings", below=_NODE),
    "checkpoint": Entry(
        "checkpoint", "write a running container's state to an archive on its node",
        below={"list": Entry("checkpoint_list", "list the archives on nodes")},
    ),
    "auth": Entry("", "ask what is allowed, and as whom", below=_AUTH),
    "api-resources": Entry("api_resources", "list the resource types the server has"),
    "api-versions": Entry("api_versions", "list the groups the server has, with their versions"),
    "config": Entry("", "show and change the kubeconfig", below=_CONFIG),
    "metrics": Entry("metrics", "list the promised metrics, their tiers and who exposes them"),
    "version": Entry("version", "show the versions of this command and of the server"),
    "completion": Entry("completion", "print the completion script of a shell"),
    "man": Entry("manual", "print the manual page of this command, or of one of its commands"),
}  # fmt: skip


def walk() -> Iterator[tuple[tuple[str, ...], Entry]]:
    """Every command that can be run, by its words."""
    for word, entry in COMMANDS.items():
        if entry.module:
            yield (word,), entry
        for lower, below in entry.below.items():
            yield (word, lower), below
