"""Packs and reads bundles of `cdigen doctor --bundle`: `packed`."""

from __future__ import annotations

import tarfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from support.doctor.broken_host import BrokenHost


def packed(host: BrokenHost, *options: str, code: int | None = 0) -> dict[str, str]:
    """Pack a bundle and return its texts by file name; the exit code must be CODE (None: 0 or 1)."""
    file = host.root.parent / "report.tar.gz"
    file.unlink(missing_ok=True)
    words = " ".join(("cdigen doctor --quiet", f"--root {host.root} --bundle {file}", *options))
    host.shell(f"{words} || test $? = 1" if code is None else words, code=code or 0)
    with tarfile.open(file) as archive:
        members = archive.getmembers()
        assert all(member.isfile() and member.name.startswith("cdigen-doctor/") for member in members)
        assert not any(".." in member.name.split("/") for member in members)
        texts = {}
        for member in members:
            content = archive.extractfile(member)
            assert content is not None
            texts[member.name.removeprefix("cdigen-doctor/")] = content.read().decode()
    return texts
