"""The output of a benchmark: every figure beside its limit, and the number of missed limits."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Row:
    """A figure; `limit` is empty where it has none."""

    what: str
    limit: str
    seen: str
    is_met: bool | None


@dataclass(slots=True)
class Table:
    """Collects rows while the benchmark runs; each is printed at once and all again at the end."""

    rows: list[Row] = field(default_factory=list)

    def row(
        self,
        what: str,
        seen: float,
        *,
        at_most: float | None = None,
        at_least: float | None = None,
        unit: str = "",
    ) -> None:
        """Add a figure and judge it by its limit, if it has one."""
        limit, is_met = "", None
        if at_most is not None:
            limit, is_met = f"<= {at_most:g}{unit}", seen <= at_most
        elif at_least is not None:
            limit, is_met = f">= {at_least:g}{unit}", seen >= at_least
        self._add(Row(what, limit, f"{_short(seen)}{unit}", is_met))

    def note(self, what: str, text: str) -> None:
        """A line without a limit: a peer's figure, or the reason why there is none."""
        self._add(Row(what, "", text, None))

    def _add(self, row: Row) -> None:
        self.rows.append(row)
        verdict = "" if row.is_met is None else ("  met" if row.is_met else "  MISSED")
        print(f"{row.what}: {row.seen}  {row.limit}{verdict}", flush=True)

    @property
    def missed(self) -> int:
        return sum(row.is_met is False for row in self.rows)

    def markdown(self) -> str:
        """All rows as a table for the documentation."""
        lines = ["| what | limit | seen | |", "|---|---|---|---|"]
        for row in self.rows:
            verdict = {None: "", True: "met", False: "**missed**"}[row.is_met]
            lines.append(f"| {row.what} | {row.limit} | {row.seen} | {verdict} |")
        return "\n".join(lines)


def _short(value: float) -> str:
    """Three significant digits: 0.237, 17.3, 2060."""
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}"
