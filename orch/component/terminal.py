"""Escaping of text for a terminal or a log, so that data from elsewhere steers neither.

Pure; knows nothing of streams, colours or log records.
"""

from __future__ import annotations


def escape_control_characters(text: str) -> str:
    """`text` with what is not printable, line breaks included, written as escapes: `\\x1b`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
