from __future__ import annotations

import pytest
from support.hosts.runtime_config import BOTH, Tree, said

MAIN = "/etc/containerd/config.toml"
DROP = "/etc/containerd/conf.d/x.toml"
OLD, NEW, NRI = "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime", "io.containerd.nri.v1.nri"
GLOB = 'imports = ["conf.d/*.toml"]'
V1_7, V2_1, V2_3 = (1, 7, 24), (2, 1, 9), (2, 3, 0)


def table(name: str, *lines: str) -> str:
    return "\n".join([f'[plugins."{name}"]', *lines, ""])


def config(version: int | None, *parts: str) -> str:
    return "\n".join([*([f"version = {version}"] if version is not None else []), *parts])


ON, OFF = "enable_cdi = true", "enable_cdi = false"
M, D = 'cdi_spec_dirs = ["/m"]', 'cdi_spec_dirs = ["/d"]'

# Main file, imported file, and what `containerd config dump` of that release made of them.
SEEN = {
    "1.7: off by default": (V1_7, config(2), "", BOTH, False),
    "1.7: the table is replaced whole": (
        V1_7,
        config(2, GLOB, table(OLD, ON, M)),
        config(2, table(OLD, D)),
        ("/d",),
        False,
    ),
    "1.7: by a file without a version too": (
        V1_7,
        config(2, GLOB, table(OLD, ON, M)),
        config(None, table(OLD, D)),
        ("/d",),
        False,
    ),
    "1.7: a version 1 makes all version 1": (
        V1_7,
        config(2, GLOB, table(OLD, ON, M)),
        config(1, table(OLD, D)),
        BOTH,
        False,
    ),
    "1.7: without a version it is 1": (V1_7, config(None, table("cri", ON, M)), "", ("/m",), True),
    "1.7: where the long name is not read": (V1_7, config(None, table(OLD, ON, M)), "", BOTH, False),
    "2.1: on by default": (V2_1, config(3), "", BOTH, True),
    "2.1: tables are merged": (
        V2_1,
        config(2, GLOB, table(OLD, OFF, M)),
        config(2, table(OLD, D)),
        ("/d",),
        False,
    ),
    "2.1: false is a value": (
        V2_1,
        config(2, GLOB, table(OLD, ON, M)),
        config(2, table(OLD, OFF)),
        ("/m",),
        False,
    ),
    "2.1: an empty list is one": (
        V2_1,
        config(3, GLOB, table(NEW, M)),
        config(3, table(NEW, "cdi_spec_dirs = []")),
        (),
        True,
    ),
    "2.1: a higher version hides the old name": (
        V2_1,
        config(2, GLOB, table(OLD, OFF, M)),
        config(3, table(NEW, ON)),
        BOTH,
        True,
    ),
    "2.1: a lower one brings it back": (
        V2_1,
        config(3, GLOB, table(NEW, M)),
        config(2, table(OLD, OFF, D)),
        ("/m",),
        False,
    ),
    "2.1: the new name wins in version 2": (
        V2_1,
        config(2, table(NEW, M), table(OLD, OFF, D)),
        "",
        ("/m",),
        False,
    ),
    "2.1: and fills up": (
        V2_1,
        config(2, GLOB, table(OLD, OFF, M)),
        config(None, table(NEW, ON)),
        ("/m",),
        True,
    ),
    "2.1: the old name in version 3": (V2_1, config(3, table(OLD, OFF, M)), "", BOTH, True),
    "2.1: or without a version": (V2_1, config(None, table(OLD, OFF, M)), "", BOTH, True),
    "2.1: or in version 1": (V2_1, config(1, table("cri", OFF, M)), "", BOTH, True),
    "2.3: each file is migrated by itself": (
        V2_3,
        config(2, GLOB, table(OLD, OFF, M)),
        config(3, table(NEW, D)),
        ("/d",),
        False,
    ),
}


@pytest.mark.parametrize(("release", "main", "drop", "dirs", "is_on"), SEEN.values(), ids=SEEN)
def test_files_are_merged_as_config_dump_of_the_release_showed(
    tree: Tree, *, release: tuple[int, int, int], main: str, drop: str, dirs: tuple[str, ...], is_on: bool
) -> None:
    tree.put(MAIN, main)
    if drop:
        tree.put(DROP, drop)
    settings = tree.read("containerd", release)
    assert (settings.spec_dirs, settings.cdi_enabled) == (dirs, is_on)
    assert settings.files == ((MAIN, DROP) if drop else (MAIN,))
    assert [found for found in settings.findings if found.severity == "error"] == []


@pytest.mark.parametrize(
    ("release", "nri"), [((1, 6, 20), None), (V1_7, False), ((2, 0, 0), True), (None, True)]
)
def test_nri_is_off_in_1_7_and_on_in_2(
    tree: Tree, *, release: tuple[int, int, int] | None, nri: bool | None
) -> None:
    assert tree.read("containerd", release).nri_enabled is nri


def test_nri_has_a_table_of_its_own_in_both(tree: Tree) -> None:
    tree.put(MAIN, config(2, table(NRI, "disable = false")))
    for release in (V1_7, V2_1):
        settings = tree.read("containerd", release)
        assert (settings.nri_enabled, settings.source("nri")) == (True, MAIN)
    tree.put(MAIN, config(2, f'disabled_plugins = ["{NRI}"]'))
    assert tree.read("containerd", V2_1).nri_enabled is False


def test_the_cri_plugin_may_be_disabled_altogether(tree: Tree) -> None:
    tree.put(MAIN, 'disabled_plugins = ["cri"]\n')  # as in Docker's own package of containerd
    settings = tree.read("containerd", V1_7)
    assert settings.cdi_enabled is False
    assert said(settings) == [("info", "cri-disabled", MAIN)]


def test_imports_are_read_level_by_level_relative_to_their_file_and_once(tree: Tree) -> None:
    tree.put(MAIN, config(3, 'imports = ["conf.d/*.toml", "z.toml", "config.toml"]'))
    tree.put(DROP, config(3, 'imports = ["sub/*", "../z.toml"]', table(NEW, D)))
    tree.put("/etc/containerd/z.toml", config(3))
    tree.put("/etc/containerd/conf.d/sub/.w", config(3, table(NEW, 'cdi_spec_dirs = ["/w"]')))
    settings = tree.read("containerd", V2_1)
    assert settings.files == (MAIN, DROP, "/etc/containerd/z.toml", "/etc/containerd/conf.d/sub/.w")
    assert settings.spec_dirs == ("/w",)


@pytest.mark.parametrize(
    ("text", "rule", "message"),
    [
        (config(3, 'imports = ["/none.toml"]'), "config-missing", "/none.toml does not exist"),
        (config(3, 'imports = ["conf.d"]'), "config-unreadable", "/etc/containerd/conf.d"),
        (
            config(3, "[plugins\n"),
            "config-syntax",
            f"{MAIN} is not TOML: Expected ']' at the end of a table declaration (at line 2, ",
        ),
        (config(3, table(NEW, 'enable_cdi = "yes"')), "config-type", f"{MAIN}, line 3: enable_cdi must be "),
        ('version = "3"\n', "config-type", f"{MAIN}, line 1: version must be a number"),
        (config(4), "config-version", f"{MAIN}, line 1: version 4, but this release reads 3 at most"),
        (
            config(3, 'disabled_plugins = ["cri"]'),
            "config-version",
            f"{MAIN}: the plugin cri has its name of",
        ),
    ],
)
def test_what_containerd_does_not_start_with_is_an_error(
    tree: Tree, text: str, rule: str, message: str
) -> None:
    tree.put(MAIN, text)
    tree.put(DROP, "")
    settings = tree.read("containerd", V2_1)
    found = [finding for finding in settings.findings if finding.severity == "error"]
    assert [finding.rule for finding in found] == [rule]
    assert found[0].message.startswith(message)
    assert found[0].message.endswith("; containerd does not start with it")


def test_what_a_release_passes_over_is_a_warning(tree: Tree) -> None:
    tree.put(MAIN, config(3, table(OLD, OFF)))
    assert said(tree.read("containerd", V2_1)) == [("warning", "config-passed-over", MAIN)]
    tree.put(MAIN, config(2, GLOB, table(OLD, ON)))
    tree.put(DROP, config(2, table(OLD, D)))
    found = tree.read("containerd", V1_7).findings
    assert [finding.rule for finding in found] == ["config-passed-over"]
    assert f"replaced as a whole by that of {DROP}" in found[0].message


@pytest.mark.parametrize(
    ("release", "text", "wanted", "is_read"),
    [
        (V1_7, config(2, GLOB), MAIN, True),
        (V2_1, config(3), "/etc/containerd/conf.d/99-cdigen.toml", False),
        (V2_1, config(3, GLOB), "/etc/containerd/conf.d/99-cdigen.toml", True),
        (
            V2_1,
            config(3, 'imports = ["/etc/containerd/*.toml"]'),
            "/etc/containerd/conf.d/99-cdigen.toml",
            False,
        ),
    ],
)
def test_the_file_to_write_is_a_drop_in_where_tables_are_merged(
    tree: Tree, *, release: tuple[int, int, int], text: str, wanted: str, is_read: bool
) -> None:
    tree.put(MAIN, text)
    settings = tree.read("containerd", release)
    assert (settings.edited_file, settings.edited_file_is_read) == (wanted, is_read)


def test_the_unit_may_name_another_main_file(tree: Tree) -> None:
    tree.put(
        "/usr/lib/systemd/system/containerd.service", "[Service]\nExecStart=/usr/bin/containerd -c /c.toml\n"
    )
    tree.put("/c.toml", config(3, table(NEW, M)))
    settings = tree.read("containerd", V2_1)
    assert (settings.files, settings.spec_dirs) == (("/c.toml",), ("/m",))
    assert settings.source("spec_dirs") == "/c.toml"
