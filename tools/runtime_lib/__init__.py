"""The implementation of `tools/runtime`: a private containerd for `make run` and for the tests."""
