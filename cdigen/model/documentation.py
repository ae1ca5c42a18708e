"""The address of the documentation.

An installation has no files of docs/. Messages, hints and help texts name man pages, or the URL of a page.
"""

from __future__ import annotations

# [project.urls] in pyproject.toml has the same address. 'make generated' writes it here, and into all other
# files that contain it.
DOCUMENTATION = "https://cdigen.example/docs"


def page_url(page: str) -> str:
    """Return the URL of docs/PAGE.md."""
    return f"{DOCUMENTATION}/{page}"
