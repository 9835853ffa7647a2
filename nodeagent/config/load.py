"""Reads files and flags, merges them into the effective configuration and validates it once.

Order: defaults < main file < drop-ins (`*.conf`, recursive, lexical) < flags. Documents merge by
JSON merge patch (RFC 7386) before defaults apply, so that a file never resets fields it does not
mention (spec.md, "Node agent configuration merging"). Errors name file, line and field.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import ValidationError

from nodeagent.config import reference, types
from nodeagent.config.layers import ConfigError as ConfigError
from nodeagent.config.layers import FlagValue as FlagValue
from nodeagent.config.layers import Layers, read_layers, set_value
from nodeagent.config.origin import Origin, nearest_origin
from nodeagent.config.types import NodeAgentConfiguration
from orch.component.yaml_file import FieldPath, show_path
from orch.wire.patch.patch import PatchError, apply_merge_patch


def merge_documents(base: dict[str, Any], documents: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """A copy of the base with every document applied in order."""
    merged: Any = apply_merge_patch(base, {})
    for document in documents:
        merged = apply_merge_patch(merged, document)
    return dict(merged)


def load_config(
    path: str | None, config_dir: str | None, flags: Sequence[FlagValue] = ()
) -> NodeAgentConfiguration:
    """Read, merge and validate everything; ConfigError lists all problems."""
    return effective(read_layers(path, config_dir, tuple(flags)))


def effective(layers: Layers) -> NodeAgentConfiguration:
    """The layers merged and validated; ConfigError lists all problems."""
    try:
        merged = _merge(layers)
    except PatchError as error:
        raise ConfigError(f"the configuration cannot be merged: {error}") from None
    problems = [_place(path, text, layers) for path, text in reference.translate(merged)]
    try:
        config = NodeAgentConfiguration.model_validate(merged)
    except ValidationError as error:
        details = error.errors(include_input=False, include_url=False)
        problems += [_describe(detail, layers) for detail in details]
    if problems:
        raise ConfigError("\n".join(problems))
    return config


def _merge(layers: Layers) -> dict[str, Any]:
    base = merge_documents({}, [layers.main.value] if layers.main else [])
    # A drop-in's threshold merges into the defaults unless the main file sets its own map.
    base.setdefault("evictionHard", dict(types.DEFAULT_EVICTION_HARD))
    merged = merge_documents(base, [document.value for document in layers.drop_ins])
    for flag in layers.flags:
        set_value(merged, flag.path, flag.value)
    own = merged.get("evictionHard")
    if merged.get("mergeDefaultEvictionSettings") is True and isinstance(own, dict):
        merged["evictionHard"] = {**types.DEFAULT_EVICTION_HARD, **own}
    return merged


def problem_of(detail: Any) -> str:
    """The text of a pydantic error."""
    if detail["type"] == "extra_forbidden":
        return "there is no such field"
    text = str(detail["msg"]).removeprefix("Value error, ")
    return re.sub("^Input should ", "must ", text)


def _describe(detail: Any, layers: Layers) -> str:
    """A line for a pydantic error: place, field, problem."""
    path: FieldPath = tuple(part for part in detail["loc"] if part != "[key]")
    message = problem_of(detail)
    if detail["type"] == "extra_forbidden":
        message += _suggest(path)
    if path:
        return _place(path, message, layers)
    first = message.split(" ", 1)[0]  # rules about several fields begin with a field
    if first not in NodeAgentConfiguration.model_fields:
        return _at(nearest_origin((), layers), message, message)
    origin = nearest_origin((first,), layers)
    written = show_path(layers.as_written((first,), origin.source))
    return _at(origin, written + message.removeprefix(first), message)


def _suggest(path: FieldPath) -> str:
    """` (did you mean maxPods?)` for what is nearly a field."""
    model: Any = NodeAgentConfiguration
    for name in path[:-1]:
        field = getattr(model, "model_fields", {}).get(name)
        model = field and field.annotation
    known = getattr(model, "model_fields", {})
    near = difflib.get_close_matches(str(path[-1]), known, n=1, cutoff=0.75)
    return f" (did you mean {near[0]}?)" if near else ""


def _place(path: FieldPath, message: str, layers: Layers) -> str:
    origin = nearest_origin(path, layers)
    written = show_path(layers.as_written(path, origin.source))
    return _at(origin, f"{written}: {message}", message)


def _at(origin: Origin, file_text: str, flag_text: str) -> str:
    if origin.kind == "flag":
        return f"{origin.source}: {flag_text}"
    if origin.kind == "file":
        return f"{origin}: {file_text}"
    return f"configuration: {file_text}"
