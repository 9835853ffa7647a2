"""Pods without a node get one: `placement` says where a pod fits, `waiting` whose turn it is (both
without I/O), `binder` looks, binds and tells.
"""
