"""Escaping of untrusted text for a terminal or a log.

Pure; knows nothing of streams, colours or log records.
"""

from __future__ import annotations


def escape_control_characters(text: str) -> str:
    """`text` with everything unprintable, line breaks included, escaped: `\\x1b`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
