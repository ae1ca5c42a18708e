"""An ear, and file sources that are stopped when the test ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.daemon.watching import Ear

from cdigen.watch.files import FileSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def ear() -> Ear:
    """Return an inbox that remembers what it has heard."""
    return Ear()


@pytest.fixture
def watch(ear: Ear) -> Iterator[Callable[..., FileSource]]:
    """Return a function that watches paths and tells the ear."""
    sources = []

    def begin(*paths: object, roots: tuple[str, ...] = ()) -> FileSource:
        source = FileSource(tuple(map(str, paths)), roots=roots)
        sources.append(source)
        source.start(ear.inbox.put)
        return source

    yield begin
    for source in sources:
        source.stop()
