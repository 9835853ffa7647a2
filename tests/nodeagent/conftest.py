"""The real container runtime, for the tests that need it."""

from tests.conftest_runtime import real_runtime as real_runtime
