"""Metrics as text: Prometheus' own format 0.0.4 and OpenMetrics 1.0; pure.

A page is written family by family; label blocks are escaped once and cached. The two formats differ
in the names of counters' families, in the unit of stamps and in the last line, and only this module
knows that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

_LINES_AT_ONCE = 256  # about 60 kB: larger blocks come from the kernel, page by page
# The type of a family follows from its name, except for these two of the reference.
_TYPES = {"container_memory_failcnt": "counter", "container_fs_inodes_total": "gauge"}
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})


def label_block(**labels: str) -> str:
    """`{a="x",b="y"}` with values escaped; empty without labels."""
    if not labels:
        return ""
    return "{" + ",".join(f'{key}="{escape(value)}"' for key, value in labels.items()) + "}"


def escape(value: str) -> str:
    """A label value as both formats write it; broken surrogates become question marks."""
    return value.translate(_ESCAPES).encode("utf-8", "replace").decode()


class LabelCache:
    """Label blocks by their parts, cached while successive pages use them.

    `end_page` drops the blocks that the page did not use, such as those of pods that are gone.
    """

    def __init__(self, build: Callable[..., str]) -> None:
        self._build = build
        self._used: dict[tuple[str, ...], str] = {}
        self._previous: dict[tuple[str, ...], str] = {}

    def __call__(self, *key: str) -> str:
        block = self._used.get(key)
        if block is None:
            block = self._previous.get(key)
            if block is None:
                block = self._build(*key)
            self._used[key] = block
        return block

    def end_page(self) -> None:
        self._previous, self._used = self._used, {}

    def __len__(self) -> int:
        return len(self._previous.keys() | self._used.keys())


def number(value: float) -> str:
    """A sample value; whole numbers are written without a fraction."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return repr(value)


def _type_of(name: str) -> str:
    return _TYPES.get(name) or ("counter" if name.endswith("_total") else "gauge")


class Page:
    """Collects lines; `family` must come before its samples, and each family only once.

    `pause` is called between families.
    """

    def __init__(
        self, *, openmetrics: bool = False, pause: Callable[[], None] = lambda: None
    ) -> None:
        self._openmetrics = openmetrics
        self._pause = pause
        self._text = bytearray()

    def add(self, lines: str) -> None:
        """Whole lines, with their ends."""
        self._text += lines.encode()

    def extend(self, lines: Sequence[str]) -> None:
        """The lines of a family, in pieces small enough to need no memory from the kernel."""
        for start in range(0, len(lines), _LINES_AT_ONCE):
            self._text += "".join(lines[start : start + _LINES_AT_ONCE]).encode()

    def family(self, name: str, text: str, *, stability: str = "") -> None:
        """Begin a family; `name` is that of its samples, which tells its type."""
        self._pause()
        kind = _type_of(name)
        if self._openmetrics and kind == "counter":
            name = name.removesuffix("_total")
        help_text = f"[{stability}] {text}" if stability else text
        escaped = help_text.translate(_ESCAPES if self._openmetrics else _HELP_ESCAPES)
        self.add(f"# HELP {name} {escaped}\n# TYPE {name} {kind}\n")

    def name_of(self, name: str) -> str:
        """The name of a family's samples: in OpenMetrics every counter ends in `_total`."""
        if self._openmetrics and _type_of(name) == "counter":
            return f"{name.removesuffix('_total')}_total"
        return name

    def stamp(self, time_ns: int) -> str:
        """The end of a line whose sample was taken at `time_ns`."""
        time_ms = time_ns // 1_000_000
        if self._openmetrics:
            return f" {time_ms // 1000}.{time_ms % 1000:03d}\n"
        return f" {time_ms}\n"

    def sample(self, name: str, labels: str, value: float, end: str = "\n") -> None:
        """One line; `end` is a stamp."""
        self.add(f"{name}{labels} {number(value)}{end}")

    def render(self) -> bytearray:
        """The whole page in the order written; not a copy, as it may have megabytes."""
        if self._openmetrics:
            self.add("# EOF\n")
        return self._text
