"""In which order the elements of a merged list stand, and how elements are told apart.

The rule is apimachinery's (`strategicpatch.normalizeElementOrder`): what the patch names comes in
the order the patch wants, the rest keeps the order it had, and the two are interleaved by their
places in the list before the patch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Identity = tuple[bool, Any]  # true is not 1: the flag says whether the value is a boolean


def identity(element: Any, merge_key: str) -> Identity:
    """What makes an element itself: its value, or with a merge key the value under that key.

    ValueError when that value is not plain; an object without the key has the value None.
    """
    value = element
    if merge_key:
        if not isinstance(element, dict):
            raise ValueError("an element is not an object")
        value = element.get(merge_key)
    if isinstance(value, dict | list):
        raise ValueError("an element has an object or a list where a plain value tells it apart")
    return isinstance(value, bool), value


def identities(elements: Sequence[Any], merge_key: str) -> list[Identity]:
    return [identity(element, merge_key) for element in elements]


def arranged(
    merged: Sequence[Any], wanted: Sequence[Identity], before: Sequence[Identity], merge_key: str
) -> list[Any]:
    """The merged elements, ordered: `wanted` as the patch names them, `before` as they stood."""
    wanted_rank, before_rank = _ranks(wanted), _ranks(before)
    pairs = [(identity(element, merge_key), element) for element in merged]
    named = sorted((p for p in pairs if p[0] in wanted_rank), key=lambda p: wanted_rank[p[0]])
    others = [pair for pair in pairs if pair[0] not in wanted_rank]
    result = []
    while named and others:
        mine, theirs = before_rank.get(others[0][0]), before_rank.get(named[0][0])
        other_first = mine is not None and theirs is not None and mine < theirs
        result.append((others if other_first else named).pop(0)[1])
    return result + [element for _, element in (*named, *others)]


def is_in_order(part: Sequence[Identity], whole: Sequence[Identity]) -> bool:
    """Whether every element of `part` is in `whole`, one after the other."""
    rest = iter(whole)
    return all(any(element == other for other in rest) for element in part)


def _ranks(elements: Sequence[Identity]) -> dict[Identity, int]:
    ranks: dict[Identity, int] = {}
    for place, element in enumerate(elements):
        ranks.setdefault(element, place)
    return ranks
