"""Escaping of untrusted text for a terminal or a log.

Pure; knows nothing of streams, colours or log records.
"""

from __future__ import annotations

import codecs

_escape = codecs.getencoder("unicode_escape")  # loaded now: later no file may be left to open


def visible(text: str) -> str:
    """The text with control and other unprintable characters escaped: `\\x1b`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escape(c)[0].decode() for c in text)


def one_line(text: str) -> str:
    """The text as one printable line: runs of white space become single spaces."""
    return visible(" ".join(text.split()))
