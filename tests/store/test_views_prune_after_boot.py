"""Views are pruned once in each boot."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from support.store import views
from support.store.processes import later
from support.store.views import in_namespace, left, publish, state

from cdigen.store.views import pruning

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def after_boot(base: Path, proc: Path, now: Callable[[], float] = later) -> dict[str, str]:
    rows = pruning.prune_after_boot(state(base), spec_dirs=(f"{base}/cdi",), proc=str(proc), now=now)
    return {row.name: row.result for row in rows}


def boot(base: Path) -> None:
    """Write the boot ID of another boot as the last boot in which views were pruned."""
    (Path(state(base)) / "views/boot-id").write_text("an earlier boot\n")


def test_views_are_pruned_once_in_each_boot(base: Path, proc: Path) -> None:
    first = publish(base)
    boot(base)
    assert after_boot(base, proc) == {first.name: "removed"}
    again = publish(base)
    assert after_boot(base, proc) == {}
    assert left(base) == [again.name]
    boot(base)
    assert after_boot(base, proc) == {again.name: "removed"}


def test_no_view_is_pruned_in_the_boot_in_which_the_first_view_was_made(base: Path, proc: Path) -> None:
    first = publish(base)
    assert after_boot(base, proc) == {}
    assert left(base) == [first.name]


def test_the_boot_is_not_recorded_if_a_spec_directory_was_written_recently(base: Path, proc: Path) -> None:
    first = publish(base)
    (base / "cdi").mkdir()
    os.utime(views.view(base, first), (0, 0))
    boot(base)
    assert after_boot(base, proc, now=time.time) == {first.name: "kept"}
    assert after_boot(base, proc) == {first.name: "removed"}
    assert after_boot(base, proc) == {}


def test_without_views_prune_after_boot_makes_no_folder(base: Path, proc: Path) -> None:
    assert after_boot(base, proc) == {}
    assert not Path(state(base)).exists()


@pytest.mark.usefixtures("own_mounts")
def test_without_a_boot_id_no_view_is_pruned(base: Path) -> None:
    output = in_namespace(
        "mount --bind /dev/null /proc/sys/kernel/random/boot_id\n---\n"
        "from cdigen.store.views.pruning import prune_after_boot\n"
        "publish(base)\n"
        "print(prune_after_boot(state(base), spec_dirs=(), now=lambda: 1e10))\n",
        base,
    )
    assert output == "()\n"
