from __future__ import annotations

import pytest
from support.hosts.runtime_config import BOTH, Tree, finding_keys

MAIN = "/etc/containerd/config.toml"
DROP = "/etc/containerd/conf.d/x.toml"
OLD, NEW, NRI = "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime", "io.containerd.nri.v1.nri"
GLOB = 'imports = ["conf.d/*.toml"]'
V1_7, V2_1, V2_3 = (1, 7, 24), (2, 1, 9), (2, 3, 5)


def table(name: str, *lines: str) -> str:
    return "\n".join([f'[plugins."{name}"]', *lines, ""])


def config(version: int | None, *parts: str) -> str:
    return "\n".join([*([f"version = {version}"] if version is not None else []), *parts])


ON, OFF = "enable_cdi = true", "enable_cdi = false"
M, D = 'cdi_spec_dirs = ["/m"]', 'cdi_spec_dirs = ["/d"]'

# Release, main file, imported file, and the directories and enable_cdi that `containerd config dump` prints.
DUMPS = {
    "1.7: off by default": (V1_7, config(2), "", BOTH, False),
    "1.7: the whole table is replaced": (
        V1_7,
        config(2, GLOB, table(OLD, ON, M)),
        config(2, table(OLD, D)),
        ("/d",),
        False,
    ),
    "1.7: also by a file without a version": (
        V1_7,
        config(2, GLOB, table(OLD, ON, M)),
        config(None, table(OLD, D)),
        ("/d",),
        False,
    ),
    "1.7: version 1 of the last file applies to all files": (
        V1_7,
        config(2, GLOB, table(OLD, ON, M)),
        config(1, table(OLD, D)),
        BOTH,
        False,
    ),
    "1.7: the default version is 1": (V1_7, config(None, table("cri", ON, M)), "", ("/m",), True),
    "1.7: in version 1 the long name is ignored": (V1_7, config(None, table(OLD, ON, M)), "", BOTH, False),
    "2.1: on by default": (V2_1, config(3), "", BOTH, True),
    "2.1: tables are merged": (
        V2_1,
        config(2, GLOB, table(OLD, OFF, M)),
        config(2, table(OLD, D)),
        ("/d",),
        False,
    ),
    "2.1: false replaces true": (
        V2_1,
        config(2, GLOB, table(OLD, ON, M)),
        config(2, table(OLD, OFF)),
        ("/m",),
        False,
    ),
    "2.1: an empty list is a value": (
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
    "2.1: a lower version also reads the old name": (
        V2_1,
        config(3, GLOB, table(NEW, M)),
        config(2, table(OLD, OFF, D)),
        ("/m",),
        False,
    ),
    "2.1: in version 2 the new name has priority": (
        V2_1,
        config(2, table(NEW, M), table(OLD, OFF, D)),
        "",
        ("/m",),
        False,
    ),
    "2.1: in version 2 the tables of both names are merged": (
        V2_1,
        config(2, GLOB, table(OLD, OFF, M)),
        config(None, table(NEW, ON)),
        ("/m",),
        True,
    ),
    "2.1: in version 3 the old name is ignored": (V2_1, config(3, table(OLD, OFF, M)), "", BOTH, True),
    "2.1: without a version the old name is ignored": (
        V2_1,
        config(None, table(OLD, OFF, M)),
        "",
        BOTH,
        True,
    ),
    "2.1: in version 1 the short name is ignored": (V2_1, config(1, table("cri", OFF, M)), "", BOTH, True),
    "2.1: an imported file of version 1 is migrated to the version of the main file": (
        V2_1,
        config(2, GLOB, table(OLD, OFF, M)),
        config(1, table("cri", D)),
        ("/d",),
        False,
    ),
    "2.3: each file is migrated separately": (
        V2_3,
        config(2, GLOB, table(OLD, OFF, M)),
        config(3, table(NEW, D)),
        ("/d",),
        False,
    ),
}


@pytest.mark.parametrize(("release", "main", "drop", "dirs", "is_on"), DUMPS.values(), ids=DUMPS)
def test_files_are_merged_as_in_the_config_dump_of_the_release(
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


def test_nri_has_its_own_table_in_1_7_and_2_1(tree: Tree) -> None:
    tree.put(MAIN, config(2, table(NRI, "disable = false")))
    for release in (V1_7, V2_1):
        settings = tree.read("containerd", release)
        assert (settings.nri_enabled, settings.source("nri")) == (True, MAIN)
    tree.put(MAIN, config(2, f'disabled_plugins = ["{NRI}"]'))
    assert tree.read("containerd", V2_1).nri_enabled is False


def test_cdi_is_off_if_the_cri_plugin_is_disabled(tree: Tree) -> None:
    tree.put(MAIN, 'disabled_plugins = ["cri"]\n')  # as in Docker's own package of containerd
    settings = tree.read("containerd", V1_7)
    assert settings.cdi_enabled is False
    assert finding_keys(settings) == [("info", "cri-disabled", MAIN)]


def test_imports_are_read_breadth_first_and_once_and_relative_to_their_file(tree: Tree) -> None:
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
            f"{MAIN}: the plugin name cri is valid only in version 1 of",
        ),
    ],
)
def test_a_file_that_prevents_the_start_of_containerd_is_an_error(
    tree: Tree, text: str, rule: str, message: str
) -> None:
    tree.put(MAIN, text)
    tree.put(DROP, "")
    settings = tree.read("containerd", V2_1)
    found = [finding for finding in settings.findings if finding.severity == "error"]
    assert [finding.rule for finding in found] == [rule]
    assert found[0].message.startswith(message)
    assert found[0].message.endswith("; containerd does not start")


# Release, version of the main file, version of the imported file, and the severity of the finding.
ORDERS = {
    "2.2 starts, and ignores tables": ((2, 2, 7), 2, 3, None),
    "2.3.0 does not start": ((2, 3, 0), 2, 4, "error"),
    "2.3.4 does not start": ((2, 3, 4), 2, 3, "error"),
    "2.3.4 starts with a lower version": ((2, 3, 4), 3, 2, None),
    "2.3.4 compares with the first file that sets a version": ((2, 3, 4), None, 4, None),
    "2.3.5 starts": ((2, 3, 5), 2, 4, None),
    "2.4 starts": ((2, 4, 0), 2, 4, None),
    "an unknown release may be one of these": (None, 2, 4, "warning"),
}


@pytest.mark.parametrize(("release", "main", "drop", "severity"), ORDERS.values(), ids=ORDERS)
def test_only_2_3_0_to_2_3_4_do_not_start_with_an_import_of_a_higher_version(
    tree: Tree, *, release: tuple[int, int, int] | None, main: int | None, drop: int, severity: str | None
) -> None:
    tree.put(MAIN, config(main, GLOB))
    tree.put(DROP, config(drop, table(NEW, ON)))
    found = [one for one in tree.read("containerd", release).findings if one.rule == "config-version-order"]
    assert [one.severity for one in found] == ([severity] if severity else [])
    for one in found:
        assert one.message.startswith(f"{DROP}, line 1: version {drop}, but {MAIN} has version {main}: ")
        assert one.hint.startswith(f"write the tables of {DROP} for version {main}")


@pytest.mark.parametrize(
    ("release", "text", "has_error"),
    [
        ((1, 6, 31), config(3), False),
        ((1, 6, 33), config(3), True),
        ((1, 7, 16), config(3), False),
        ((1, 7, 17), config(3), True),
        ((2, 2, 7), config(4), True),
        ((2, 3, 0), config(4), False),
        ((2, 3, 5), config(5), True),
        ((2, 4, 0), config(5), False),
        (None, config(4), False),
        (None, config(5), False),
    ],
)
def test_a_version_is_too_new_only_for_an_examined_release_that_checks_it(
    tree: Tree, *, release: tuple[int, int, int] | None, text: str, has_error: bool
) -> None:
    tree.put(MAIN, text)
    rules = [finding.rule for finding in tree.read("containerd", release).findings]
    assert rules == (["config-version"] if has_error else [])


@pytest.mark.parametrize("release", [V1_7, (2, 0, 0), V2_1, (2, 3, 0), V2_3, None])
def test_dockers_own_configuration_of_containerd_is_no_error(
    tree: Tree, release: tuple[int, int, int] | None
) -> None:
    tree.put(MAIN, 'disabled_plugins = ["cri"]\n')
    assert finding_keys(tree.read("containerd", release)) == [("info", "cri-disabled", MAIN)]


def test_a_table_that_a_release_ignores_is_a_warning(tree: Tree) -> None:
    tree.put(MAIN, config(3, table(OLD, OFF)))
    assert finding_keys(tree.read("containerd", V2_1)) == [("warning", "config-passed-over", MAIN)]
    tree.put(MAIN, config(2, GLOB, table(OLD, ON)))
    tree.put(DROP, config(2, table(OLD, D)))
    found = tree.read("containerd", V1_7).findings
    assert [finding.rule for finding in found] == ["config-passed-over"]
    assert f"the table in {DROP} replaces this table" in found[0].message


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
def test_the_edited_file_is_a_drop_in_if_the_release_merges_tables(
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
