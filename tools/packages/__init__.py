"""Builds what the service is installed from: `.deb` packages, and trees for an rpm recipe.

`python -m tools.packages deb` is what `make deb` runs.
"""
