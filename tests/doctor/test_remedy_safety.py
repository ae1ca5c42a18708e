"""A printed remedy is safe to run, whatever the names and owners of the files are."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.abilities import cannot_run, tool
from support.doctor.broken_host import ALICE, BINARIES, BrokenHost
from support.doctor.requests import doctor_context

from cdigen.doctor.commands import needs_root
from cdigen.doctor.result import Remedy, Topic, command_line, filter_remedies, quoted

CONFIGURATION = "home/alice/.config/containers/containers.conf"


@pytest.fixture
def shared(host: BrokenHost) -> BrokenHost:
    """Return the host with the user alice. Her podman also reads a directory of her own."""
    host.put("etc/passwd", ALICE)
    host.put("etc/shadow", "root:secret\n", mode=0o600)
    host.put(CONFIGURATION, '[engine]\ncdi_spec_dirs = ["/etc/cdi", "/var/run/cdi", "/home/alice/cdi"]\n')
    (host.root / "home/alice/cdi").mkdir()
    for path in (
        "home/alice",
        *(str(p.relative_to(host.root)) for p in (host.root / "home/alice").rglob("*")),
    ):
        os.chown(host.root / path, 1000, 1000)
    (host.root / "root").mkdir(mode=0o700, exist_ok=True)
    return host


def remedies(host: BrokenHost) -> str:
    return "\n".join(row["remedy"] for row in host.results("--user", "alice") if not row["ok"])


def printed(host: BrokenHost) -> list[str]:
    """Return the remedies in the text output."""
    command = f"cdigen doctor --root {host.root}; true"
    return [line.partition("remedy: ")[2] for line in host.shell(command).splitlines() if "remedy: " in line]


@pytest.mark.parametrize("character", ["\xa0", "\x1b", "\n", "\udcff"])
def test_a_printed_remedy_never_executes_a_file_name(
    host: BrokenHost, tmp_path: Path, character: str
) -> None:
    host.put(f"run/cdi/x'$(touch PWNED){character}.json", host.document())
    lines = printed(host)
    assert lines
    for line in lines:
        assert line.isprintable()
        subprocess.run(
            [tool("bash"), "-c", line],
            cwd=tmp_path,
            check=True,
            capture_output=True,
            env={"PATH": "/usr/bin:/bin"},
        )
    assert not (tmp_path / "PWNED").exists()
    assert len(list(host.path("run/cdi").glob("*.disabled"))) == 1


@given(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]) | st.just("\udcff"), min_size=1)
)
def test_a_quoted_word_is_printable_and_one_word(text: str) -> None:
    word = quoted(text)
    assert word.isprintable()
    remedies = (Remedy(argv=("rm", text), why=""), Remedy(argv=("mv", text, "b"), why=""))
    assert command_line(remedies) == f"rm {word} && mv {word} b"
    if not word.startswith("$"):
        assert shlex.split(f"rm {word} && mv {word} b") == ["rm", text, "&&", "mv", text, "b"]


@pytest.mark.parametrize("text", ["a b", "it's", "a\nb", "\x1b1'\\", "\udcff7", "é\xa0", "$(id)\t`id`"])
def test_a_quoted_word_is_the_text_for_bash(text: str) -> None:
    done = subprocess.run([tool("bash"), "-c", f"printf %s {quoted(text)}"], capture_output=True, check=True)
    assert done.stdout == text.encode("utf-8", "surrogateescape")


@pytest.mark.parametrize(
    ("argv", "is_kept"),
    [
        (("rm", "-f", "/host/etc/a"), True),
        (("mv", "/host/etc/a b", "/host/etc/$(id)"), True),
        (("mv", "/host/etc/a", "/etc/a"), False),
        (("rm", "/host/../etc/a"), False),
        (("rm", "/hostile/a"), False),
        (("rm", "a"), False),
        (("modprobe", "/host/etc/a"), False),
        (("cdigen", "generate", "--write"), False),
        (("cdigen", "generate", "--write", "--root", "/host"), True),
    ],
)
def test_only_commands_inside_the_hosts_folder_are_kept(argv: tuple[str, ...], is_kept: bool) -> None:  # noqa: FBT001
    remedy = Remedy(argv=argv, why="")
    result = filter_remedies(Topic(name="x").error("y", "detail", (remedy,)), "/host")
    assert (result.remedies == (remedy,)) == is_kept
    assert ("on that host: " in result.detail) != is_kept


@pytest.mark.parametrize("name", ["al;ice", "al$(id)ice"])
def test_a_users_name_is_quoted(host: BrokenHost, name: str) -> None:
    host.put("etc/passwd", ALICE.replace("alice:x", f"{name}:x"))
    row = host.result("user-id-ranges", "--user", "1000")
    assert host.remedy_on_host(row).endswith(f" '{name}'")


def test_no_remedy_changes_the_mode_of_roots_file_behind_a_users_link(shared: BrokenHost) -> None:
    shared.link("home/alice/cdi/nvidia.json", "/etc/shadow")
    assert "chmod" not in remedies(shared)


def test_no_remedy_changes_the_mode_of_roots_file_behind_a_users_configuration(shared: BrokenHost) -> None:
    (shared.root / CONFIGURATION).unlink()
    shared.link(CONFIGURATION, "/etc/shadow")
    assert "chmod" not in remedies(shared)
    assert not shared.result("podman-config", "--user", "alice")["ok"]


def test_the_remedy_permits_users_to_read_the_system_configuration(shared: BrokenHost) -> None:
    (shared.root / CONFIGURATION).unlink()
    file = shared.put("etc/containers/containers.conf", "[engine]\n", mode=0o600)
    row = shared.result("podman-config", "--user", "alice")
    shared.shell(row["remedy"])
    assert file.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("folder", ["/root", "/etc/cdi/../../root"])
def test_no_remedy_changes_roots_directory_in_a_users_configuration(shared: BrokenHost, folder: str) -> None:
    (shared.root / CONFIGURATION).write_text(f'[engine]\ncdi_spec_dirs = ["{folder}", "/var/run/cdi"]\n')
    assert "chmod" not in remedies(shared)


def test_a_home_directory_keeps_its_mode_and_owner(shared: BrokenHost) -> None:
    shared.put("home/alice/cdi/other.json", shared.document(), mode=0o600)
    (shared.root / "home/alice").chmod(0o700)
    assert "home/alice" not in remedies(shared)


def test_a_spec_of_a_user_is_trusted_for_this_user(shared: BrokenHost) -> None:
    file = shared.put("home/alice/cdi/nvidia.json", shared.document())
    os.chown(file, 1000, 1000)
    rows = [row for row in shared.results("--user", "alice") if row["check"] == "spec-trust"]
    assert all(row["ok"] for row in rows)


def test_a_link_of_a_user_is_not_replaced_by_a_copy(shared: BrokenHost) -> None:
    (shared.root / "home/alice/cdi").rmdir()
    shared.link("home/alice/cdi", "/root")
    assert "cp " not in remedies(shared)


def test_the_home_directory_of_a_hook_keeps_its_owner(shared: BrokenHost) -> None:
    hook = shared.put("home/alice/hook", "", mode=0o755)
    os.chown(hook, 1000, 1000)
    document = shared.document()
    edit = {"hookName": "createContainer", "path": "/home/alice/hook", "env": ["PATH=/bin"]}
    document["containerEdits"]["hooks"] = [edit]
    shared.put("run/cdi/nvidia.com-gpu.json", document)
    rows = [row for row in shared.results() if row["check"] == "hook-trust"]
    assert [(row["ok"], row["remedy"]) for row in rows] == [(False, "")]


def test_the_remedy_protects_a_spec_directory_that_other_users_may_change(shared: BrokenHost) -> None:
    (shared.root / "run/cdi").chmod(0o777)
    row = shared.result("spec-trust")
    shared.shell(row["remedy"])
    assert shared.result("spec-trust")["ok"]


def test_a_host_in_a_folder_has_no_remedy_that_changes_this_machine(host: BrokenHost) -> None:
    for runtime in BINARIES:
        (host.root / "usr/bin" / BINARIES[runtime]).unlink(missing_ok=True)
    host.put("usr/bin/apt-get", "", mode=0o755)
    shutil.rmtree(host.root / "proc/driver")
    rows = [row for row in host.results("--for", "docker") if not row["ok"]]
    assert {"driver-loaded", "docker-installed"} <= {row["check"] for row in rows}
    for row in rows:
        assert row["remedy"] == "" or str(host.root) in row["remedy"]
    assert "on that host: modprobe nvidia" in rows[0]["detail"] + rows[1]["detail"]


def test_a_remedy_names_the_real_folder_and_no_link_to_it(tmp_path: Path) -> None:
    (tmp_path / "judged").mkdir()
    (tmp_path / "link").symlink_to("judged")
    context = doctor_context(state_dir=str(tmp_path))
    assert context.outer(f"{tmp_path}/link/a.json") == f"{tmp_path}/judged/a.json"
    assert context.outer(f"{tmp_path}/link") == f"{tmp_path}/link"


def test_no_file_is_renamed_in_a_folder_of_a_user(shared: BrokenHost) -> None:
    file = shared.put("home/alice/cdi/other.json", "{broken")
    os.chown(file, 1000, 1000)
    row = next(row for row in shared.results("--user", "alice") if row["check"] == "spec-syntax")
    assert (row["ok"], row["remedy"], row["commands"]) == (False, "", [])


def test_each_command_has_its_arguments_and_the_key_as_root(host: BrokenHost) -> None:
    host.put("run/cdi/two words.json", host.document())
    row = host.diagnosis()
    (command,) = row["commands"]
    assert command["argv"] == [
        "mv",
        f"{host.path('run/cdi/two words.json')}",
        f"{host.path('run/cdi/two words.json.disabled')}",
    ]
    assert (command["as_root"], row["remedy"]) == (True, shlex.join(command["argv"]))
    assert command["why"]


def test_a_file_of_the_present_user_needs_no_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() == 0:
        os.chown(tmp_path, 4201, 4201)
        monkeypatch.setattr(os, "geteuid", lambda: 4201)
    assert not needs_root(f"{tmp_path}/not/there/yet.json")
    assert needs_root("/etc/cdi/a.json")


def test_mounts_of_a_users_spec_are_not_labelled_by_root(shared: BrokenHost) -> None:
    shared.put("sys/fs/selinux/enforce", "1")
    precious = shared.put("home/alice/precious", "")
    try:
        os.setxattr(precious, "security.selinux", b"u:object_r:user_home_t:s0\0")
    except OSError as error:
        cannot_run(f"labels cannot be set here: {error.strerror}")
    document = shared.document()
    mount = {"hostPath": "/home/alice/precious", "containerPath": "/precious", "options": ["bind"]}
    document["containerEdits"]["mounts"] = [mount]
    os.chown(shared.put("home/alice/cdi/nvidia.json", document), 1000, 1000)
    row = shared.result("selinux-labels", "--user", "alice")
    assert (row["ok"], row["remedy"], "on that host" in row["detail"]) == (False, "", False)
