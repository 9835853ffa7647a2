"""What goes past the public interface of aiohttp, and of asyncio below it; only this room may.

`connection` does it for promises (slow clients, quiet refusals, ordered stops), `fast_path` and
`sliced_response` for speed. What each saves is in docs/benchmarks.md, and
`python -m tools.bench aiohttp_internals` measures it again. The range of versions it was tested
with is pinned; tests/orch/component/http/test_aiohttp_changed.py says what a new one changes.
"""
