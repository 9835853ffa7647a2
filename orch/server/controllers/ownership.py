"""Objects whose owners are deleted: from who owns whom to deletions and releases; pure.

An object with owners lives as long as any of them. Owners deleted in the foreground wait for their
dependents; dependents of owners deleted with `orphan` are released first. As the reference's
pkg/controller/garbagecollector.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"


class OwnerState(Enum):
    """The state of an owner, as a dependent sees it."""

    THERE = "there"
    WAITING = "waiting"  # waits to be deleted until its dependents are
    ORPHANING = "orphaning"  # waits to be deleted until its dependents are released
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Ref:
    """One owner reference: `kind` with its group, so that it can be looked up."""

    api_version: str
    kind: str
    name: str
    uid: str
    blocks: bool = False


@dataclass(frozen=True, slots=True)
class Owned:
    """An object with owners; `key` is where it is stored."""

    key: str
    uid: str
    refs: tuple[Ref, ...]


@dataclass(slots=True)
class GarbagePlan:
    """`delete`: by key, whether in the foreground; `let_go`: by key, the owners (uids) to drop;
    `release`: by key of an owner, the finalizer that nothing needs any more.
    """

    delete: dict[str, bool] = field(default_factory=dict)
    let_go: dict[str, frozenset[str]] = field(default_factory=dict)
    release: dict[str, str] = field(default_factory=dict)


def plan(
    owned: Iterable[Owned],
    owners: Collection[str],
    going: Mapping[str, tuple[str, str]],
    state_of: Callable[[Owned, Ref], OwnerState],
) -> GarbagePlan:
    """`owned`: at least all that have an owner which is not just there; `owners`: the uids of those
    among them that own something. `going`: uid → key and finalizer of the owners that wait to be
    deleted.
    """
    result = GarbagePlan()
    held: set[str] = set()  # uids of owners that must wait longer
    waits: dict[str, list[str]] = {}  # uid of a dependent that waits itself → those it holds
    for dependent in owned:
        states = [(ref, state_of(dependent, ref)) for ref in dependent.refs]
        waiting = [ref.uid for ref, state in states if state is OwnerState.WAITING and ref.blocks]
        held |= {ref.uid for ref, state in states if state is OwnerState.ORPHANING}
        if going.get(dependent.uid, ("", ""))[1] == FOREGROUND:
            waits[dependent.uid] = waiting
        else:
            held.update(waiting)
        leaving = _leaving(states)
        if leaving:
            result.let_go[dependent.key] = leaving
        elif all(state is not OwnerState.THERE for _, state in states):
            waited_for = any(state is OwnerState.WAITING for _, state in states)
            result.delete[dependent.key] = waited_for and dependent.uid in owners
    _hold_in_turn(held, waits)
    result.release = {key: name for uid, (key, name) in going.items() if uid not in held}
    return result


def _hold_in_turn(held: set[str], waits: Mapping[str, Collection[str]]) -> None:
    """Add the owners of dependents that wait themselves, from their last ones on. A circle that
    nothing else holds has no last one: its objects would wait for each other for ever.
    """
    owners = set(chain.from_iterable(waits.values()))
    reached = [uid for uid in waits if uid in held or uid not in owners]
    while reached:
        for owner in waits.get(reached.pop(), ()):
            if owner not in held:
                held.add(owner)
                reached.append(owner)


def _leaving(states: Sequence[tuple[Ref, OwnerState]]) -> frozenset[str]:
    """The owners an object drops: all that orphan it, and, if others remain, all deleted ones."""
    orphaning = frozenset(ref.uid for ref, state in states if state is OwnerState.ORPHANING)
    if any(state is OwnerState.THERE for _, state in states):
        return orphaning | {
            ref.uid for ref, s in states if s in (OwnerState.GONE, OwnerState.WAITING)
        }
    return orphaning
