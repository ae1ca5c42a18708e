"""The scripts of packages search for specs that name the hook. They follow links, and open no FIFO."""

from __future__ import annotations

import os
import re
import subprocess
from typing import TYPE_CHECKING

import pytest
from support.paths import REPOSITORY

if TYPE_CHECKING:
    from pathlib import Path

HOOK = "/usr/libexec/cdigen/cdigen-hook"


@pytest.mark.parametrize("script", ["debian/cdigen.prerm", "rpm/cdigen.spec"])
def test_a_fifo_in_a_spec_directory_does_not_block_a_removal(tmp_path: Path, script: str) -> None:
    folders = [tmp_path / "etc-cdi", tmp_path / "run-cdi"]
    text = (REPOSITORY / "packaging" / script).read_text()
    (condition,) = re.findall(r'\[ -n "\$\(find -L /etc/cdi .*?\)" \]', text, re.DOTALL)
    condition = condition.replace("/etc/cdi /run/cdi", " ".join(map(str, folders)))

    def is_used() -> bool:
        command = ["sh", "-euc", f"hook={HOOK}\n{condition}"]
        return subprocess.run(command, check=False, timeout=60).returncode == 0

    assert not is_used()
    for folder in folders:
        folder.mkdir()
        os.mkfifo(folder / "fifo.json")
    (folders[0] / "other.json").write_text("{}")
    assert not is_used()
    (tmp_path / "elsewhere").write_text(f'{{"path": "{HOOK}"}}')
    (folders[1] / "own.yaml").symlink_to(tmp_path / "elsewhere")
    assert is_used()
