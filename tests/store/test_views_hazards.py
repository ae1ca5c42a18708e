"""Kills, concurrent writers and changing sources never leave an incomplete view."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.abilities import cannot_run
from support.store.killing import child, killed_after, moments
from support.store.views import LIBRARY, PLAN, SMI, is_whole, left, publish, put, state, view
from support.waiting import pause

from cdigen.host.root import Root
from cdigen.model.errors import StoreError
from cdigen.store.directory import open_or_create
from cdigen.store.views import builder, folder, publishing, sources
from cdigen.store.views.folder import VIEW_NAME

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cdigen.store.directory import Directory
    from cdigen.store.views.sources import ViewLayout

KILLS = 40


def prepared(base: Path) -> tuple[Root, ViewLayout]:
    root = Root(str(base))
    return root, sources.view_layout(PLAN, root)


@contextmanager
def building(base: Path, name: str = "nvidia-0123456789abcdef") -> Iterator[tuple[Directory, Directory]]:
    """Yield the directory of the views, and the temporary folder of the view NAME."""
    with open_or_create(f"{state(base)}/views") as directory, folder.temporary_view(directory, name) as made:
        yield directory, made


def test_a_kill_of_a_publisher_at_any_moment_leaves_no_view_or_a_complete_view(base: Path) -> None:
    folder = Path(state(base)) / "views"

    def publish_for_ever() -> None:
        while True:
            put(base, LIBRARY, b"A" * int.from_bytes(os.urandom(2)))  # another size, so another driver
            publish(base)

    rubbish: list[str] = []
    names: set[str] = set()
    # Temporary folders show that a publisher was killed while it built a view.
    for moment in moments(KILLS, 0.06, lambda: rubbish and len(names) > 1):
        with killed_after(publish_for_ever):
            pause(moment)
        for name in left(base):
            if not VIEW_NAME.fullmatch(name):
                rubbish.append(name)
                continue
            names.add(name)
            there = {str(path.relative_to(folder / name)) for path in (folder / name).rglob("*")}
            assert there >= set(PLAN.paths())
        put(base, LIBRARY, b"last")
        assert is_whole(base, publish(base))
        assert all(VIEW_NAME.fullmatch(name) for name in left(base))


def test_concurrent_publishers_make_a_single_view(base: Path) -> None:
    def publish_thrice() -> None:
        for _ in range(3):
            publish(base)

    for _ in range(5):
        put(base, LIBRARY, b"A" * int.from_bytes(os.urandom(2)))
        before = set(left(base))
        pids = [child(publish_thrice) for _ in range(4)]
        assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * 4
        new = set(left(base)) - before
        assert len(new) == 1
        assert is_whole(base, publish(base))


def test_a_second_publisher_uses_the_view_of_the_first_publisher(base: Path) -> None:
    root, wanted = prepared(base)
    with building(base, wanted.name) as (directory, temporary):
        builder.fill(temporary, wanted, root, copies=False)
        other = publish(base)
        assert folder.find_intact(directory, wanted) == folder.IntactView(name=other.name)
    assert left(base) == [other.name]


def test_only_the_temporary_folders_of_ended_builders_are_swept(base: Path) -> None:
    reader, writer = os.pipe()

    def build_and_wait() -> None:
        with building(base) as (_, temporary):
            (Path(temporary.path) / "lib64").mkdir()
            os.write(writer, b"x")
            signal.pause()

    with killed_after(build_and_wait):
        os.read(reader, 1)
        rest = left(base)
        assert len(rest) == 1
        with open_or_create(f"{state(base)}/views") as directory:
            folder.sweep(directory)
        assert left(base) == rest
    os.close(reader)
    os.close(writer)
    published = publish(base)
    assert left(base) == [published.name]


def test_a_link_with_the_name_of_a_temporary_folder_is_not_followed(base: Path, tmp_path: Path) -> None:
    precious = put(tmp_path, "/precious/file", b"x")
    folder = Path(state(base)) / "views"
    folder.mkdir(parents=True)
    (folder / ".cdigen-nvidia-0123456789abcdef.1.00000000.tmp").symlink_to(precious.parent)
    (folder / ".cdigen-x.2.00000000.tmp").mkdir()
    (folder / ".cdigen-x.2.00000000.tmp/link").symlink_to(precious.parent)
    publish(base)
    assert precious.exists()
    assert not (folder / ".cdigen-x.2.00000000.tmp").exists()


def setuid(base: Path) -> None:
    (base / SMI[1:]).chmod(0o4755)


def replaced(base: Path) -> None:
    put(base, SMI, b"malware", mode=0o755)


def rewritten(base: Path) -> None:
    (base / SMI[1:]).write_bytes(b"other")


def linked_away(base: Path) -> None:
    (base / SMI[1:]).unlink()
    (base / SMI[1:]).symlink_to("/usr/lib/x86_64-linux-gnu/libcuda.so.550.163.01")


def folder_linked_away(base: Path) -> None:
    put(base.parent, "/outside/nvidia-smi", b"B" * 35_000, mode=0o755)
    os.rename(base / "usr/bin", base / "usr/old")
    (base / "usr/bin").symlink_to(base.parent / "outside")


def fifo(base: Path) -> None:
    (base / SMI[1:]).unlink()
    os.mkfifo(base / SMI[1:])


def gone(base: Path) -> None:
    (base / SMI[1:]).unlink()


@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("change", [setuid, replaced, rewritten, linked_away, folder_linked_away, fifo, gone])
def test_a_source_that_changes_after_the_check_is_an_error(
    base: Path,
    change: Callable[[Path], None],
    copies: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    root, wanted = prepared(base)
    change(base)
    with building(base) as (_, temporary), pytest.raises(StoreError) as caught:
        builder.fill(temporary, wanted, root, copies=copies)
    assert "usr/bin/nvidia-smi" in caught.value.message
    assert left(base) == []


def test_continuously_swapped_sources_put_no_foreign_file_into_a_view(base: Path) -> None:
    put(base.parent, "/outside/nvidia-smi", b"S" * 35_000, mode=0o755)
    real, evil = base / "usr/bin", base / "usr/evil"
    evil.symlink_to(base.parent / "outside")

    def swap_for_ever() -> None:
        while True:
            os.rename(real, base / "usr/real")
            os.rename(evil, real)
            os.rename(real, evil)
            os.rename(base / "usr/real", real)

    made_views = []
    with killed_after(swap_for_ever):
        for number in range(200):
            put(base, LIBRARY, b"%d" % number)
            try:
                made_views.append(publish(base))
            except StoreError:
                continue
    for published in made_views:
        smi = view(base, published) / "bin/nvidia-smi"
        assert smi.read_bytes() == b"B" * 35_000


def test_a_continuously_changed_mode_puts_no_setuid_file_into_a_new_view(base: Path) -> None:
    def flicker() -> None:
        while True:
            (base / SMI[1:]).chmod(0o4755)
            (base / SMI[1:]).chmod(0o755)

    with killed_after(flicker):
        for number in range(60):
            put(base, LIBRARY, b"%d" % number)
            try:
                publish(base)
            except StoreError as error:
                assert "was changed" in error.message  # noqa: PT017 - either outcome is right
    (base / SMI[1:]).chmod(0o755)
    folders = [Path(state(base)) / "views" / name for name in left(base)]
    assert folders
    assert all(not path.stat().st_mode & 0o6000 for folder in folders for path in folder.rglob("*"))


@pytest.mark.needs_root
def test_a_user_without_privileges_gets_copies_if_the_kernel_refuses_links(base: Path) -> None:
    if Path("/proc/sys/fs/protected_hardlinks").read_text().strip() != "1":
        cannot_run("fs.protected_hardlinks is off: the kernel refuses no link")
    home = base.parent / "home"
    for path in (home, *home.parents[:2]):
        path.mkdir(exist_ok=True)
    reader, writer = os.pipe()

    def as_user() -> None:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        try:
            publishing.publish_view(PLAN, Root(str(base)), f"{home}/state", copies=False)
        except StoreError as error:
            os.write(writer, f"{error.message}|".encode())
        published = publishing.publish_view(PLAN, Root(str(base)), f"{home}/state", copies=True)
        os.write(writer, published.how.encode())

    os.chown(home, 65534, 65534)
    for path in base.parents:
        if path.stat().st_mode & 0o005 != 0o005:
            path.chmod(path.stat().st_mode | 0o005)
    status = os.waitpid(child(as_user), 0)[1]
    os.close(writer)
    with os.fdopen(reader) as results:
        message, _, how = results.read().partition("|")
    assert (status, how) == (0, "copied")
    assert "fs.protected_hardlinks" in message
