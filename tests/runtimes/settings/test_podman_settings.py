from __future__ import annotations

import pytest
from support.hosts.runtime_config import ALICE, BOTH, Tree, finding_keys

MAIN = "/etc/containers/containers.conf"
DROP = "/etc/containers/containers.conf.d/10.conf"
ROOT_MAIN = "/root/.config/containers/containers.conf"
ROOT_DROP = "/root/.config/containers/containers.conf.d/x.conf"


def dirs(value: str) -> str:
    return f"[engine]\ncdi_spec_dirs = {value}\n"


@pytest.mark.parametrize(
    ("release", "found"),
    [
        ((4, 3, 1), BOTH),
        ((5, 4, 2), BOTH),
        ((5, 5, 0), ("/etc/cdi",)),
        ((5, 5, 2), ("/etc/cdi",)),
        ((5, 6, 0), BOTH),
        ((5, 8, 6), BOTH),
        (None, BOTH),
    ],
)
def test_the_default_directories_depend_on_the_release(
    tree: Tree, release: tuple[int, int, int] | None, found: tuple[str, ...]
) -> None:
    settings = tree.read("podman", release)
    assert (settings.spec_dirs, settings.files, settings.findings) == (found, (), ())


def test_before_5_5_the_configuration_does_not_change_the_directories(tree: Tree) -> None:
    tree.put(MAIN, dirs('["/a"]'))
    settings = tree.read("podman", (5, 4, 2))
    assert (settings.spec_dirs, settings.has_dirs_key, settings.files) == (BOTH, False, (MAIN,))


# Files in the order in which podman 5.8.6 opens them (strace), their values, and the resulting directories.
OBSERVED = (
    (MAIN, '["/a"]', ("/a",)),
    (DROP, '["/b", {append=true}]', ("/a", "/b")),
    (ROOT_MAIN, '["/c"]', ("/a", "/b", "/c")),
    (ROOT_DROP, '["/d", {append=false}]', ("/d",)),
    (ROOT_DROP, "[]", ("/a", "/b", "/c")),
    (ROOT_DROP, "[{append=false}]", ()),
)


def test_files_are_merged_as_podman_5_8_6_merges_them(tree: Tree) -> None:
    for path, value, found in OBSERVED:
        tree.put(path, dirs(value))
        settings = tree.read("podman", (5, 8, 6))
        assert settings.spec_dirs == found
        assert settings.source("spec_dirs") == path
        assert settings.findings == ()


def test_the_files_of_a_user_are_read_in_the_order_of_podman_5_8_6(
    tree: Tree,
) -> None:
    order = (
        "/usr/share/containers/containers.conf",
        MAIN,
        "/etc/containers/containers.conf.d/a.conf",
        "/etc/containers/containers.rootless.conf",
        "/etc/containers/containers.rootless.conf.d/c.conf",
        "/etc/containers/containers.rootless.conf.d/1234/d.conf",
        "/home/alice/.config/containers/containers.conf",
        "/home/alice/.config/containers/containers.conf.d/e.conf",
    )
    for path in (*order, "/etc/containers/containers.rootless.conf.d/99/f.conf", ROOT_MAIN):
        tree.put(path, "[engine]\n")
    settings = tree.read("podman", (5, 8, 6), ALICE)
    assert settings.files == order
    assert settings.rootless
    assert settings.edited_file == "/home/alice/.config/containers/containers.conf.d/90-cdigen.conf"


def test_podman_4_3_reads_no_file_of_roots_home(tree: Tree) -> None:
    tree.put(ROOT_MAIN, "[engine]\n")
    assert tree.read("podman", (4, 3, 1)).files == ()
    assert tree.read("podman", (5, 8, 6)).files == (ROOT_MAIN,)


def test_only_names_that_end_in_conf_are_drop_ins(tree: Tree) -> None:
    for name in ("a.conf.bak", "b.toml", ".hidden.conf"):
        tree.put(f"/etc/containers/containers.conf.d/{name}", dirs('["/x"]'))
    assert tree.read("podman", (5, 8, 6)).files == ("/etc/containers/containers.conf.d/.hidden.conf",)


def test_podman_6_reads_one_main_file_and_the_last_of_drop_ins_with_equal_names(tree: Tree) -> None:
    tree.put("/usr/share/containers/containers.conf", dirs('["/share"]'))
    tree.put(MAIN, "")
    tree.put("/usr/share/containers/containers.conf.d/10.conf", dirs('["/hidden"]'))
    tree.put(DROP, dirs('["/ten"]'))
    tree.put("/usr/share/containers/containers.rootful.conf.d/20.conf", dirs('["/twenty", {append=true}]'))
    tree.put("/etc/containers/containers.rootless.conf.d/30.conf", dirs('["/thirty"]'))
    settings = tree.read("podman", (6, 0, 0))
    assert settings.files == (MAIN, DROP, "/usr/share/containers/containers.rootful.conf.d/20.conf")
    assert settings.spec_dirs == ("/ten", "/twenty")


def test_containers_conf_replaces_all_files_and_containers_conf_override_is_last(tree: Tree) -> None:
    tree.put(MAIN, dirs('["/a"]'))
    tree.put("/one.conf", dirs('["/one"]'))
    tree.put("/two.conf", dirs('["/two", {append=true}]'))
    settings = tree.read(
        "podman", (5, 8, 6), CONTAINERS_CONF="/one.conf", CONTAINERS_CONF_OVERRIDE="/two.conf"
    )
    assert (settings.files, settings.spec_dirs) == (("/one.conf", "/two.conf"), ("/one", "/two"))
    assert not settings.edited_file_is_read


def test_a_file_that_a_variable_names_must_exist(tree: Tree) -> None:
    settings = tree.read("podman", (5, 8, 6), CONTAINERS_CONF="/none.conf")
    assert finding_keys(settings) == [("error", "config-missing", "/none.conf")]


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("[engine\n", "line 1"),
        ('[engine]\nx = 1\ncdi_spec_dirs = "/d"\n', "line 3"),
        ('[engine]\ncdi_spec_dirs = ["/d", 1]\n', "line 2"),
        ('[engine]\ncdi_spec_dirs = ["/d", {prepend=true}]\n', "line 2"),
        ('[engine]\ncdi_spec_dirs = ["/d", {append="yes"}]\n', "line 2"),
        ("[engine]\nx = [\n", "end of document"),
    ],
)
def test_a_broken_file_is_a_finding_with_its_line_and_the_other_files_apply(
    tree: Tree, text: str, position: str
) -> None:
    tree.put(MAIN, dirs('["/a"]'))
    tree.put(DROP, text)
    settings = tree.read("podman", (5, 8, 6))
    assert settings.spec_dirs == ("/a",)
    assert [(found.severity, found.path) for found in settings.findings] == [("error", DROP)]
    message = settings.findings[0].message
    assert message.startswith(DROP)
    assert position in message
    assert "podman stops" in message


def test_a_file_that_only_root_can_read_is_an_error_only_for_a_users_podman(tree: Tree) -> None:
    tree.put(MAIN, dirs('["/a"]'), mode=0o600)
    assert tree.read("podman", (5, 8, 6)).findings == ()
    settings = tree.read("podman", (5, 8, 6), ALICE)
    assert finding_keys(settings) == [("error", "config-unreadable", MAIN)]
    assert settings.findings[0].hint == "add read permission for that user"
