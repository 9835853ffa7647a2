"""The HTTP server on aiohttp: the only package that may use aiohttp's and asyncio's internals.

`connection` uses them for guarantees (slow clients, quiet refusals, ordered stops), `httpd`,
`fair_queue` and `sliced_response` for speed. Their savings are in docs/benchmarks.md and measured
by `python -m tools.bench aiohttp_internals`. The range of tested versions is pinned;
tests/orch/component/http/test_aiohttp_changed.py fails where a new version differs.
"""
