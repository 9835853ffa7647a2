"""Sets of fields of an object, in the form of `fieldsV1`, and their algebra; pure.

A set is a tree of dicts. Its names are path elements: `f:<field>` of an object, `k:<key fields as
JSON>` or `v:<value as JSON>` of a list's element, `i:<index>`. Below each is what belongs to the
set inside of it; the name "." says that the element itself does, and so does an empty dict. Trees
share parts with one another: none may be changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

FieldSet = dict[str, Any]  # path element → FieldSet of what is inside, or {}

SELF = "."
NOTHING: FieldSet = {}
_WHOLE_MAX = 2**63
_KINDS = ("f:", "k:", "v:", "i:")


def node(children: FieldSet, *, member: bool) -> FieldSet | None:
    """What stands below a path element; None when neither it nor anything inside belongs."""
    if not member:
        return children or None
    return {SELF: NOTHING, **children} if children else NOTHING


def is_member(below: FieldSet) -> bool:
    """Whether the path element above this belongs to the set itself."""
    return not below or SELF in below


def children(below: FieldSet) -> FieldSet:
    if SELF not in below:
        return below
    return {name: inside for name, inside in below.items() if name != SELF}


def union(left: FieldSet, right: FieldSet) -> FieldSet:
    if not left or not right:
        return left or right
    result = dict(left)
    for name, theirs in right.items():
        own = result.get(name)
        if own is None:
            result[name] = theirs
        elif own or theirs:
            result[name] = _union(own, theirs)
    return result


def _union(left: FieldSet, right: FieldSet) -> FieldSet:
    if left is right:
        return left
    inside = union(children(left), children(right))
    if not (is_member(left) or is_member(right)):
        return inside
    return {SELF: NOTHING, **inside} if inside else NOTHING


def intersection(left: FieldSet, right: FieldSet) -> FieldSet:
    if len(left) > len(right):
        left, right = right, left
    result = {}
    for name, below in left.items():
        theirs = right.get(name)
        if theirs is None or name == SELF:
            continue
        found = node(
            intersection(children(below), children(theirs)),
            member=is_member(below) and is_member(theirs),
        )
        if found is not None:
            result[name] = found
    return result


def difference(left: FieldSet, right: FieldSet) -> FieldSet:
    """What is in `left` only; an element stays when only something inside of it is taken away, and
    what is inside stays when only the element is.
    """
    return _difference(left, right, whole=False)


def without(left: FieldSet, right: FieldSet) -> FieldSet:
    """`left` without the elements of `right` and everything inside of them."""
    return _difference(left, right, whole=True)


def _difference(left: FieldSet, right: FieldSet, *, whole: bool) -> FieldSet:
    result = left
    for name in left if len(left) < len(right) else right:
        below, taken = left.get(name), right.get(name)
        if below is None or taken is None or name == SELF:
            continue
        if result is left:
            result = dict(left)
        gone = is_member(taken)
        if gone and (whole or not below):
            del result[name]
            continue
        inside = _difference(children(below), children(taken), whole=whole)
        kept = node(inside, member=is_member(below) and not gone)
        if kept is None:
            del result[name]
        else:
            result[name] = kept
    return result


def leaves(fields: FieldSet) -> FieldSet:
    """The members that have none inside of them."""
    return {
        name: leaves(below) if below.keys() - {SELF} else NOTHING
        for name, below in fields.items()
        if name != SELF
    }


def count(fields: FieldSet) -> int:
    """The members."""
    return sum((name != SELF) * is_member(below) + count(below) for name, below in fields.items())


def ordered(fields: FieldSet) -> FieldSet:
    """The same set as the reference writes it: fields, then keys and values, each in order."""
    if not fields:
        return NOTHING
    names = sorted((name for name in fields if name != SELF), key=_rank)
    inside = {name: fields[name] and ordered(fields[name]) for name in names}
    return {SELF: NOTHING, **inside} if SELF in fields else inside


def _rank(name: str) -> tuple[int, Any]:
    kind, content = name[:2], name[2:]
    if kind == "i:":
        return 3, int(content)
    if kind == "f:":
        return 0, content
    value = orjson.loads(content)
    if kind == "k:":
        return 1, [(key, _comparable(item)) for key, item in value.items()]
    return 2, _comparable(value)


def _comparable(value: Any) -> tuple[int, Any]:
    """Numbers, texts, booleans and others, each compared with their own."""
    if isinstance(value, bool):
        return 2, value
    if isinstance(value, int | float):
        return 0, value
    return (1, value) if isinstance(value, str) else (3, _text(value))


def paths(fields: FieldSet) -> Iterator[str]:
    """The members as texts (`.spec.containers[name="a"].image`), those of a level first."""
    return _paths(fields, "")


def _paths(fields: FieldSet, prefix: str) -> Iterator[str]:
    names = sorted((name for name in fields if name != SELF), key=_rank)
    for name in names:
        if is_member(fields[name]):
            yield prefix + shown(name)
    for name in names:
        if fields[name]:
            yield from _paths(fields[name], prefix + shown(name))


def shown(name: str) -> str:
    """A path element as messages have it."""
    kind, content = name[:2], name[2:]
    if kind == "f:":
        return f".{content}"
    if kind == "i:":
        return f"[{content}]"
    value = orjson.loads(content)
    if kind == "v:":
        return f"[={_text(value)}]"
    return "[" + ",".join(f"{key}={_text(item)}" for key, item in value.items()) + "]"


def _text(value: Any) -> str:
    return orjson.dumps(value).decode()


def field_element(name: str) -> str:
    return f"f:{name}"


def key_element(fields: Mapping[str, Any]) -> str:
    """The element of a list with these key fields."""
    if len(fields) > 1:
        fields = {name: fields[name] for name in sorted(fields)}
    return f"k:{_text({name: _canonical(value) for name, value in fields.items()})}"


def value_element(value: Any) -> str:
    """The element of a set that is this plain value."""
    return f"v:{_text(_canonical(value))}"


def _canonical(value: Any) -> Any:
    """1.0 is 1, as everywhere in JSON; what has over 64 bits stays as it is."""
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) < _WHOLE_MAX
    return int(value) if is_whole else value


def parse(data: Any) -> FieldSet:
    """A set that a client wrote, its elements as this module writes them; kinds of elements not
    known here are left out. ValueError.
    """
    return _parsed([data])


def _parsed(forms: Sequence[Any]) -> FieldSet:
    """Of all forms in which an element was written, each read once."""
    result: FieldSet = {}
    inside: dict[str, list[Any]] = {}
    for data in forms:
        if not isinstance(data, dict):
            raise ValueError("must be an object")
        for name, below in data.items():
            element = SELF if name == SELF else _parsed_element(name)
            if element == SELF:
                result[SELF] = NOTHING
            elif element is not None:
                inside.setdefault(element, []).append(below)
    for element, written in inside.items():
        below = _parsed(written)
        if not all(written):  # the element itself belongs, too
            result[element] = {SELF: NOTHING, **below} if below else NOTHING
        elif below:  # else only what is not known here
            result[element] = below
    return result


def _parsed_element(name: str) -> str | None:
    """None for a kind that is not known."""
    if len(name) < 2 or name[1] != ":":
        raise ValueError(f"{name[:40]!r} is no path element: it begins with {', '.join(_KINDS)}")
    kind, content = name[:2], name[2:]
    if kind == "f:":
        return name
    if kind not in _KINDS:
        return None
    try:
        value = orjson.loads(content)
    except orjson.JSONDecodeError:
        raise ValueError(f"{name[:40]!r} is no path element: it is not JSON") from None
    if kind == "i:":
        if type(value) is not int:
            raise ValueError(f"{name[:40]!r} is no path element: the index is no number")
        return f"i:{value}"
    if kind == "k:" and not isinstance(value, dict):
        raise ValueError(f"{name[:40]!r} is no path element: the key is no object")
    try:
        return value_element(value) if kind == "v:" else key_element(value)
    except orjson.JSONEncodeError:
        raise ValueError(f"{name[:40]!r} is no path element: it is nested too deeply") from None
