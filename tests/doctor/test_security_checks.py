"""The doctor's checks of the start-up hook and of a user's permissions."""

from pathlib import Path
from typing import Any

import pytest
from support.doctor.broken_host import ALICE, DEVICE, NAME, BrokenHost

HOOK = "usr/libexec/cdigen/cdigen-hook"


@pytest.fixture
def hooked(host: BrokenHost) -> BrokenHost:
    """Return a host whose spec has a hook."""
    python = host.put("usr/bin/python3", "", mode=0o755)
    python.chmod(0o755)
    for name in (HOOK, "usr/libexec/cdigen/lib/cdigen/hook/main.py", "usr/lib/python3/os.py"):
        host.put(name, "", mode=0o755)
    host.shell(f"cdigen generate --write --root {host.root}")
    assert "cdigen-hook" in host.spec.read_text()
    return host


def test_an_existing_hook_of_root_passes(hooked: BrokenHost) -> None:
    hooked.doctor(wrong=False)
    assert "cdigen-hook" in hooked.result("hook-present")["detail"]


def test_the_remedy_removes_a_missing_hook_from_the_spec(hooked: BrokenHost) -> None:
    hooked.path(HOOK).unlink()
    row = hooked.diagnosis("--device", DEVICE)
    assert row["check"] == "hook-present"
    hooked.fixed(row)


def test_the_remedy_protects_a_hook_that_other_users_may_write(hooked: BrokenHost) -> None:
    hooked.path(HOOK).chmod(0o777)
    row = hooked.diagnosis("--device", DEVICE)
    assert (row["check"], row["severity"]) == ("hook-trust", "error")
    hooked.fixed(row)


def test_the_remedy_writes_a_hook_with_an_environment(hooked: BrokenHost) -> None:
    def change(document: dict[str, Any]) -> None:
        for hook in document["containerEdits"]["hooks"]:
            hook.pop("env")

    hooked.put(f"run/cdi/{NAME}", hooked.changed(change))
    row = hooked.result("hook-environment")
    assert not row["ok"]
    hooked.fixed(row)


def test_the_remedy_assigns_an_unused_range_to_a_user_without_ids(host: BrokenHost) -> None:
    host.put("etc/passwd", ALICE)
    host.put("etc/subuid", "bob:100000:65536\n")
    row = host.result("user-id-ranges", "--user", "alice")
    assert not row["ok"]
    words = "usermod --add-subuids 165536-231071 --add-subgids 100000-165535 alice"
    assert host.remedy_on_host(row) == words


def test_disabled_user_namespaces_are_reported(host: BrokenHost) -> None:
    host.put("etc/passwd", ALICE)
    host.put("proc/sys/user/max_user_namespaces", "15000\n")
    assert host.result("user-namespaces", "--user", "alice")["ok"]
    host.put("proc/sys/user/max_user_namespaces", "0\n")
    row = host.result("user-namespaces", "--user", "alice")
    assert (row["ok"], row["severity"]) == (False, "error")
    assert host.remedy_on_host(row) == "sysctl --write user.max_user_namespaces=15000"
    host.put("proc/sys/user/max_user_namespaces", "15000\n")
    host.put("proc/sys/kernel/unprivileged_userns_clone", "0\n")
    assert not host.result("user-namespaces", "--user", "alice")["ok"]


USER_CHECKS = ("user-namespaces", "user-id-ranges", "user-id-helpers")


@pytest.mark.parametrize("runtimes", [(), ("docker",), ("docker", "containerd", "crio")])
def test_without_rootless_containers_the_user_needs_no_ids(
    tmp_path: Path,
    real_nodes: None,  # noqa: ARG001 - nodes must be real
    runtimes: tuple[str, ...],
) -> None:
    host = BrokenHost(tmp_path / "host").make(*runtimes)
    host.put("etc/passwd", ALICE)
    host.put("proc/sys/user/max_user_namespaces", "0\n")
    rows = {row["check"]: row["ok"] for row in host.results("--user", "alice")}
    assert [rows[name] for name in USER_CHECKS] == [True, True, True]
    if runtimes:
        host.put("home/alice/.config/docker/daemon.json", "{}")
        rows = {row["check"]: row["ok"] for row in host.results("--user", "alice")}
        assert [rows[name] for name in USER_CHECKS] == [False, False, False]


def test_the_remedy_installs_missing_helpers_for_ids(host: BrokenHost) -> None:
    host.put("etc/passwd", ALICE)
    host.put("usr/bin/apt-get", "", mode=0o755)
    row = host.result("user-id-helpers", "--user", "alice")
    assert (row["ok"], host.remedy_on_host(row)) == (False, "apt-get install --yes uidmap")
    for name in ("newuidmap", "newgidmap"):
        host.put(f"usr/bin/{name}", "", mode=0o755)
    assert host.result("user-id-helpers", "--user", "alice")["ok"]
