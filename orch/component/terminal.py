"""Escaping of text for a terminal, so that data from elsewhere cannot steer the reader's screen.

Pure, and importable by every program: knows nothing of streams, colours or logs.
"""

from __future__ import annotations


def visible(text: str) -> str:
    """The text with control and other unprintable characters shown as escapes: `\\x1b`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def one_line(text: str) -> str:
    """The text as one printable line: runs of white space become single spaces."""
    return visible(" ".join(text.split()))
