"""Machines for tests: Debian systems with systemd as process 1, made from packages in seconds."""
