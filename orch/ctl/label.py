"""`orchctl label` and `orchctl annotate`: `key=value` sets, `key-` removes."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from orch.ctl import changes, choosing, session
from orch.ctl.api import PATCH_TYPES, Api
from orch.ctl.choosing import Chosen
from orch.ctl.commands import Verb
from orch.ctl.discovery import Discovery
from orch.ctl.failures import CommandFailed, WrongUsage, visible
from orch.ctl.manifests import Manifest
from orch.wire import raw
from orch.wire.patch.patch import apply_merge_patch


@dataclass(frozen=True, slots=True)
class _Kind:
    """Labels or annotations: the member of metadata, and what having set them is called."""

    member: str
    one: str
    done: str


_LABELS = _Kind("labels", "label", "labeled")
_ANNOTATIONS = _Kind("annotations", "annotation", "annotated")


def split(words: Sequence[str]) -> tuple[list[str], dict[str, str | None]]:
    """The words that name objects, and what to set; None removes. WrongUsage if set twice."""
    first = next((n for n, word in enumerate(words) if "=" in word or word.endswith("-")), None)
    named = list(words if first is None else words[:first])
    wanted: dict[str, str | None] = {}
    for word in [] if first is None else words[first:]:
        key, equals, value = word.partition("=")
        key = key if equals else key.removesuffix("-")
        if not key or (not equals and not word.endswith("-")):
            raise WrongUsage(f"{word!r} is neither key=value nor key-")
        if key in wanted:
            raise WrongUsage(f"{key} is named twice: what should it be?")
        wanted[key] = value if equals else None
    return named, wanted


def _add_arguments(parser: argparse.ArgumentParser, kind: _Kind, manager: str) -> None:
    choosing.add_arguments(parser, f"give {kind.one}s", nargs="+")
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="of every namespace")
    parser.add_argument("--overwrite", action="store_true", help="change values that are set")
    parser.add_argument("--list", action="store_true", help=f"show the {kind.one}s")
    parser.add_argument("--resource-version", default="", help="only if it is still this one")
    changes.add_dry_run(parser)
    changes.add_output(parser)
    changes.add_field_manager(parser, manager)


def _run(args: argparse.Namespace, kind: _Kind) -> int:
    named, wanted = split(args.words)
    if not wanted and not args.list:
        raise WrongUsage(f"say what to set: key=value, or key- to remove the {kind.one}")
    found = choosing.require(args, named)
    return session.run(args, partial(_change_all, kind, named, wanted, found))


async def _change_all(
    kind: _Kind,
    named: Sequence[str],
    wanted: Mapping[str, str | None],
    found: Sequence[Manifest],
    api: Api,
    args: argparse.Namespace,
) -> int:
    listed = await choosing.choose(api, Discovery(api), args, named, found)
    several = len(listed) > 1 or args.all or bool(args.selector)

    async def change(chosen: Chosen) -> None:
        await _change(kind, wanted, chosen, api, args, several=several)

    return await changes.each(listed, change)


async def _change(
    kind: _Kind,
    wanted: Mapping[str, str | None],
    chosen: Chosen,
    api: Api,
    args: argparse.Namespace,
    *,
    several: bool,
) -> None:
    before = await api.read(chosen.path)
    present = raw.mapping(before, "metadata", kind.member)
    if args.list:
        _list(kind, chosen, {**present, **wanted}, several=several)
        return
    if not args.overwrite:
        _require_free(chosen, kind, wanted, present)
    metadata: dict[str, Any] = {kind.member: dict(wanted)}
    if args.resource_version:
        metadata["resourceVersion"] = args.resource_version
    after = await _patched(before, {"metadata": metadata}, chosen, api, args)
    if kind is _LABELS and not args.output:
        for key in (key for key, value in wanted.items() if value is None and key not in present):
            print(visible(f'label "{key}" not found.'))
    changes.show(after, chosen.resource, _word(kind, wanted, present), args)


def _list(kind: _Kind, chosen: Chosen, values: Mapping[str, str | None], *, several: bool) -> None:
    """`key=value` lines; of several objects each under a line that names it."""
    if several:
        of = f"{chosen.resource.kind}.{chosen.resource.group}/{chosen.name}"
        print(visible(f"Listing {kind.member} for {of}:"))
    for key, value in sorted(values.items()):
        if value is not None:
            print(visible(f"{' ' if several else ''}{key}={value}"))


def _require_free(
    chosen: Chosen, kind: _Kind, wanted: Mapping[str, str | None], present: Mapping[str, Any]
) -> None:
    for key, value in wanted.items():
        if value is not None and present.get(key, value) != value:
            raise CommandFailed(
                f"{chosen.shown} has the {kind.one} {key}={present[key]} already: "
                "confirm the change by --overwrite"
            )


async def _patched(
    before: dict[str, Any], patch: Any, chosen: Chosen, api: Api, args: argparse.Namespace
) -> dict[str, Any]:
    if args.dry_run == "client":
        after: dict[str, Any] = apply_merge_patch(before, patch)
        return after
    params = changes.parameters(args)
    return await api.send(
        "PATCH", chosen.path, patch, params=params, content_type=PATCH_TYPES["merge"]
    )


def _word(kind: _Kind, wanted: Mapping[str, str | None], present: Mapping[str, Any]) -> str:
    """`labeled`, `unlabeled` when labels only went, `not labeled` when nothing changed."""
    if kind is _ANNOTATIONS:
        return kind.done
    if all(present.get(key) == value for key, value in wanted.items()):
        return f"not {kind.done}"
    return kind.done if any(value is not None for value in wanted.values()) else f"un{kind.done}"


LABEL = Verb(
    partial(_add_arguments, kind=_LABELS, manager="cli-label"),
    partial(_run, kind=_LABELS),
    """
orchctl label node worker-1 disk=ssd
orchctl label pods -l app=web tier=front --overwrite
orchctl label node worker-1 disk-
""",
)
ANNOTATE = Verb(
    partial(_add_arguments, kind=_ANNOTATIONS, manager="cli-annotate"),
    partial(_run, kind=_ANNOTATIONS),
    """
orchctl annotate pod web owner='the shop team'
orchctl annotate pods --all owner-
""",
)
