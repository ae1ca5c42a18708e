"""The views that prune removes, and the views that prune keeps."""

from __future__ import annotations

import os
import random
import secrets
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest
from support.abilities import cannot_run
from support.store import views
from support.store.killing import killed_after, moments
from support.store.processes import FIRST_NAMESPACE, later, table
from support.store.views import LIBRARY, in_namespace, left, publish, put, state, while_locked
from support.waiting import pause

from cdigen.store.views import pruning, volumes
from cdigen.store.views.folder import VIEW_NAME

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.store.views.pruning import PrunedView
    from cdigen.store.views.publishing import PublishedView


def prune(
    base: Path, proc: Path | str, *, now: Callable[[], float] = later, dry_run: bool = False
) -> dict[str, PrunedView]:
    rows = pruning.prune(state(base), spec_dirs=(f"{base}/cdi",), proc=str(proc), now=now, dry_run=dry_run)
    assert list(rows) == sorted(rows, key=lambda row: row.name)
    return {row.name: row for row in rows}


def two(base: Path) -> tuple[PublishedView, PublishedView]:
    first = publish(base)
    put(base, LIBRARY, b"another driver")
    return first, publish(base)


def spec(base: Path, text: str, name: str = "nvidia.com-gpu.json") -> Path:
    return put(base, f"/cdi/{name}", text.encode())


def test_an_unused_view_is_removed_and_a_view_in_a_spec_stays(base: Path, proc: Path) -> None:
    first, second = two(base)
    file = spec(base, f'{{"hostPath": "{second.path}/lib64"}}')
    rows = prune(base, proc)
    assert rows[first.name].result == "removed"
    assert (rows[second.name].result, rows[second.name].reason) == ("kept", f"{file} names it")
    assert left(base) == [second.name]


def test_a_dry_run_reports_removable_views_and_changes_nothing(base: Path, proc: Path) -> None:
    first = publish(base)
    lock = Path(state(base)) / "lock"
    lock.unlink()
    assert prune(base, proc, dry_run=True)[first.name].result == "removable"
    assert left(base) == [first.name]
    assert not lock.exists()


def test_without_views_prune_returns_nothing_and_makes_no_folder(base: Path, proc: Path) -> None:
    assert prune(base, proc) == {}
    assert not Path(state(base)).exists()


@pytest.mark.parametrize(
    "name", ["other.yaml", "nvidia.json", ".cdigen-x.json.1.00000000.tmp", "x.json.foreign-20250101T000000Z"]
)
@pytest.mark.parametrize(
    "text",
    ['{{"cdiVersion": "0.5.0", "mounts": [{{"hostPath": "{0}', "hostPath: {0}/lib64\n", "\udc80\udcff{0}"],
    ids=["truncated", "yaml", "no-text"],
)
def test_prune_keeps_a_view_that_any_file_in_a_spec_directory_names(
    base: Path, proc: Path, name: str, text: str
) -> None:
    first = publish(base)
    put(base, f"/cdi/{name}", os.fsencode(text.format(first.path)))
    assert name in prune(base, proc)[first.name].reason
    assert left(base) == [first.name]


def test_a_view_with_a_volume_stays(base: Path, proc: Path) -> None:
    first, second = two(base)
    volumes.point_link(state(base), "nvidia_driver", first.name)
    rows = prune(base, proc)
    assert rows[first.name].reason == f"{state(base)}/volumes/nvidia_driver names it"
    assert rows[second.name].result == "removed"
    volumes.point_link(state(base), "nvidia_driver", publish(base).name)
    assert prune(base, proc)[first.name].result == "removed"


def test_all_views_stay_if_the_volumes_cannot_be_read(base: Path, proc: Path) -> None:
    first = publish(base)
    (Path(state(base)) / "volumes").write_text("no directory")
    assert "is not a directory" in prune(base, proc)[first.name].reason


def test_a_damaged_view_is_removed_if_the_spec_names_its_replacement(base: Path, proc: Path) -> None:
    first = publish(base)
    (views.view(base, first) / "bin/nvidia-smi").unlink()
    second = publish(base)
    spec(base, second.path)
    assert prune(base, proc)[first.name].result == "removed"
    assert left(base) == [second.name]


def test_all_views_stay_if_a_spec_directory_cannot_be_read(base: Path, proc: Path) -> None:
    first = publish(base)
    (base / "cdi").write_text("no directory")
    assert f"{base}/cdi cannot be read and may name it" in prune(base, proc)[first.name].reason
    assert left(base) == [first.name]


def test_all_views_stay_if_a_spec_is_too_large_to_read(base: Path, proc: Path) -> None:
    first = publish(base)
    with spec(base, "").open("wb") as file:
        file.truncate(1 << 40)
    os.utime(base / "cdi/nvidia.com-gpu.json", (0, 0))
    assert "larger than" in prune(base, proc)[first.name].reason


def test_special_files_in_a_spec_directory_do_not_block_pruning(base: Path, proc: Path) -> None:
    first = publish(base)
    (base / "cdi/sub.json").mkdir(parents=True)
    os.mkfifo(base / "cdi/fifo.json")
    (base / "cdi/link.json").symlink_to("nowhere")
    assert prune(base, proc)[first.name].result == "removed"


def test_a_new_view_stays_for_a_minute(base: Path, proc: Path) -> None:
    first = publish(base)
    assert "less than 60 s ago" in prune(base, proc, now=lambda: time.time() + 50)[first.name].reason
    assert prune(base, proc, now=lambda: time.time() + 61)[first.name].result == "removed"


def test_a_view_that_was_published_again_is_new(base: Path, proc: Path) -> None:
    first = publish(base)
    os.utime(views.view(base, first), (0, 0))
    assert prune(base, proc, now=time.time, dry_run=True)[first.name].result == "removable"
    publish(base)
    assert prune(base, proc, now=time.time)[first.name].result == "kept"


@pytest.mark.parametrize("written", ["cdi", "cdi/nvidia.com-gpu.json"])
def test_all_views_stay_if_a_spec_directory_was_written_recently(
    base: Path, proc: Path, written: str
) -> None:
    first = publish(base)
    spec(base, "{}")
    now = time.time()
    for path in (base / "cdi", base / "cdi/nvidia.com-gpu.json", views.view(base, first)):
        os.utime(path, (now - 100, now - 100))
    os.utime(base / written, (now - 30, now - 30))
    assert "a container may be starting" in prune(base, proc, now=lambda: now)[first.name].reason


def test_a_view_with_a_time_in_the_future_stays(base: Path, proc: Path) -> None:
    first = publish(base)
    assert prune(base, proc, now=lambda: 1e9)[first.name].result == "kept"


@pytest.mark.parametrize(
    "root",
    ["/var/lib/cdigen/views/{}", "/views/{}/lib64", "/cdigen/views/{}//deleted", "/@/{}/fixed/a\\040b"],
)
def test_a_view_that_a_process_has_mounted_stays(base: Path, proc: Path, root: str) -> None:
    first, second = two(base)
    table(proc, "20", "/", root.format(first.name))
    rows = prune(base, proc)
    assert rows[first.name].reason == "process 20 has it mounted"
    assert rows[second.name].result == "removed"


def test_all_views_stay_if_a_mount_table_cannot_be_read(base: Path, proc: Path) -> None:
    first = publish(base)
    (proc / "20/mountinfo").unlink()
    (proc / "20/mountinfo").mkdir()
    assert f"{proc}/20/mountinfo cannot be read" in prune(base, proc)[first.name].reason


def test_too_many_mounts_for_the_time_limit_are_a_problem(proc: Path) -> None:
    table(proc, "40", *(f"/{number}" for number in range(1000)))
    tables = pruning.mounted_views(["nvidia-0123456789abcdef"], str(proc), time_limit_s=0)
    assert tables.processes == {}
    assert "takes more than 0 s" in tables.problem


def test_all_views_stay_in_another_pid_namespace(base: Path, proc: Path) -> None:
    first = publish(base)
    (proc / "self/ns/pid").unlink()
    (proc / "self/ns/pid").symlink_to("pid:[4026532000]")
    assert "does not contain the host's other processes" in prune(base, proc)[first.name].reason


def test_all_views_stay_if_proc_hides_processes(base: Path, proc: Path) -> None:
    first = publish(base)
    os.rename(proc / "1", proc / "2")
    assert "hidepid" in prune(base, proc)[first.name].reason


def test_all_views_stay_without_proc(base: Path, tmp_path: Path) -> None:
    first = publish(base)
    assert "cannot be read" in prune(base, tmp_path / "nowhere")[first.name].reason


def test_each_mount_namespace_is_read_once(proc: Path) -> None:
    for pid in ("1", "20"):
        (proc / pid / "ns").mkdir()
        (proc / pid / "ns/mnt").symlink_to("mnt:[1]")
    (proc / "20/mountinfo").unlink()
    (proc / "20/mountinfo").mkdir()
    assert pruning.mounted_views(["x"], str(proc)) == pruning.MountedViews(processes={})


@pytest.mark.usefixtures("own_mounts")
def test_a_view_that_is_mounted_in_another_mount_namespace_stays(base: Path) -> None:
    if os.readlink("/proc/self/ns/pid") != FIRST_NAMESPACE:
        cannot_run("this is no first process namespace")
    first, second = two(base)
    (base / "mnt").mkdir()
    source = views.view(base, first)
    script = 'mount --bind -o ro "$1" "$2"; echo ready; read -r line'
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-euc", script, "sh"]
    with subprocess.Popen(
        [*command, str(source), str(base / "mnt")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as container:
        assert container.stdout is not None
        assert container.stdout.readline() == "ready\n"
        rows = prune(base, "/proc")
        container.communicate("\n")
    assert "has it mounted" in rows[first.name].reason
    assert rows[second.name].result == "removed"
    assert prune(base, "/proc")[first.name].result == "removed"


@pytest.mark.usefixtures("own_mounts")
def test_a_view_that_cannot_be_removed_is_reported_and_stays_complete(base: Path) -> None:
    # For prune, a view is mounted if any mount table has its name, so no other test may mount this view.
    script = f"""
views="$1/var/lib/cdigen/views"
mkdir -p "$views/nvidia-{secrets.token_hex(8)}"
mount --bind "$views" "$views"
mount -o remount,bind,ro "$views"
---
import time
from cdigen.store.views import pruning
row, = pruning.prune(state(base), spec_dirs=(), now=lambda: time.time() + 100)
print(row.result, row.reason)
"""
    assert in_namespace(script, base) == "failed cannot be removed: Read-only file system\n"


@pytest.mark.usefixtures("own_mounts")
def test_a_view_with_a_mount_in_it_stays_with_the_files_of_the_mount(base: Path) -> None:
    script = f"""
view="$1/var/lib/cdigen/views/nvidia-{secrets.token_hex(8)}"
mkdir -p "$view/m" "$1/precious"
touch "$1/precious/file"
mount --bind "$1/precious" "$view/m"
---
import time
from cdigen.store.views import pruning
row, = pruning.prune(state(base), spec_dirs=(), now=lambda: time.time() + 100)
print(row.result)
"""
    assert in_namespace(script, base) == "kept\n"
    assert (base / "precious/file").exists()


def test_files_that_are_not_views_are_not_listed_and_not_removed(base: Path, proc: Path) -> None:
    folder = Path(state(base)) / "views"
    for name in ("nvidia", "nvidia-0123", "nvidia-0123456789ABCDEF", "..nvidia-0123456789abcdef"):
        (folder / name).mkdir(parents=True)
    (folder / "nvidia-0123456789abcdef").write_text("a file")
    before = left(base)
    assert prune(base, proc) == {}
    assert left(base) == before


def test_a_kill_of_a_pruner_at_any_moment_leaves_only_complete_views(base: Path, proc: Path) -> None:
    def prune_once() -> None:
        prune(base, proc)

    rubbish: list[str] = []
    # Temporary folders show that a pruner was killed while it removed a view.
    for moment in moments(25, 0.02, lambda: rubbish):
        for number in range(8):
            put(base, LIBRARY, b"%d" % number * random.randint(1, 5))
            publish(base)
        with killed_after(prune_once):
            pause(moment)
        for name in left(base):
            if VIEW_NAME.fullmatch(name):
                files = [
                    path for path in (Path(state(base)) / "views" / name).rglob("*") if not path.is_dir()
                ]
                assert len(files) == len(views.PLAN.paths())
            else:
                rubbish.append(name)
    prune(base, proc)
    assert left(base) == []


def test_a_published_view_stays_complete_during_concurrent_pruning(base: Path, proc: Path) -> None:
    folder = views.view(base, publish(base))

    def prune_for_ever() -> None:
        while True:
            prune(base, proc, now=time.time)

    with killed_after(prune_for_ever):
        for _ in range(60):
            with suppress(FileNotFoundError):  # the pruner has removed the view
                os.utime(folder, (0, 0))
            assert views.is_whole(base, publish(base))


def test_prune_waits_for_the_lock(base: Path, proc: Path) -> None:
    first = publish(base)
    assert while_locked(base, lambda: prune(base, proc))[first.name].result == "removed"
