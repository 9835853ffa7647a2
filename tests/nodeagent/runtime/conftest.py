"""The real runtime, for the tests of the adapter."""

from tests.conftest_runtime import real_runtime as real_runtime
