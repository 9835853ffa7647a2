"""The release every program of this distribution reports.

The interface follows release 1.35 of the reference system, so that clients which compare minor
versions see the one they know; the suffix counts this project's own releases of it.
"""

MAJOR = "1"
MINOR = "35"
VERSION = f"v{MAJOR}.{MINOR}.0-orch.1"
