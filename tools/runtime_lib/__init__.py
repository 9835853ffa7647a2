"""What `tools/runtime` is made of: a private containerd for `make run` and for the tests."""
