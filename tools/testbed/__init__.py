"""Machines for tests: Debian systems with systemd as process 1, built from packages in seconds."""
