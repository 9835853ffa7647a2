"""Pods without a node get one: `placement` says where a pod fits, `ledger` what counts where and
whose turn it is (both without I/O), `binder` binds and tells.
"""
