from __future__ import annotations

import pytest
from support.hosts.runtime_config import BOTH, Tree, finding_keys

MAIN = "/etc/crio/crio.conf"
FOLDER = "/etc/crio/crio.conf.d"
UNIT = "/usr/lib/systemd/system/crio.service"


def dirs(*paths: str) -> str:
    return f"[crio.runtime]\ncdi_spec_dirs = {list(paths)}\n"


@pytest.mark.parametrize(
    ("release", "cdi", "nri"),
    [
        ((1, 23, 0), False, None),
        ((1, 24, 0), True, None),
        ((1, 26, 0), True, False),
        ((1, 30, 0), True, True),
        (None, True, True),
    ],
)
def test_the_defaults_depend_on_the_release(
    tree: Tree, *, release: tuple[int, int, int] | None, cdi: bool, nri: bool | None
) -> None:
    settings = tree.read("cri-o", release)
    assert (settings.spec_dirs, settings.cdi_enabled, settings.nri_enabled) == (BOTH, cdi, nri)
    assert settings.edited_file == f"{FOLDER}/99-cdigen.conf"


def test_every_file_below_the_folder_applies_in_the_order_of_names(tree: Tree) -> None:
    tree.put(MAIN, dirs("/main"))
    for name in ("10-a.conf", "20/x.toml", "20.conf~"):
        tree.put(f"{FOLDER}/{name}", dirs(f"/{name}"))
    settings = tree.read("cri-o", (1, 34, 0))
    assert settings.files == (MAIN, *(f"{FOLDER}/{name}" for name in ("10-a.conf", "20/x.toml", "20.conf~")))
    assert settings.spec_dirs == ("/20.conf~",)
    assert settings.source("spec_dirs") == f"{FOLDER}/20.conf~"


def test_nri_has_its_own_table(tree: Tree) -> None:
    tree.put(f"{FOLDER}/a", "[crio.nri]\nenable_nri = false\n")
    settings = tree.read("cri-o", (1, 34, 0))
    assert (settings.nri_enabled, settings.source("nri")) == (False, f"{FOLDER}/a")


def test_arguments_and_variables_of_the_unit_override_files(tree: Tree) -> None:
    tree.put(MAIN, dirs("/main"))
    tree.put(
        UNIT,
        "[Service]\nEnvironment=CONTAINER_CDI_SPEC_DIRS=/e,/f\nExecStart=/usr/bin/crio --enable-nri=false\n",
    )
    settings = tree.read("cri-o", (1, 34, 0))
    assert (settings.spec_dirs, settings.nri_enabled) == (("/e", "/f"), False)
    tree.put(
        UNIT, "[Service]\nExecStart=/usr/bin/crio --cdi-spec-dirs /g --config /x.conf --config-dir /x.d\n"
    )
    tree.put("/x.conf", dirs("/h"))
    settings = tree.read("cri-o", (1, 34, 0))
    assert (settings.spec_dirs, settings.files, settings.edited_file) == (
        ("/g",),
        ("/x.conf",),
        "/x.d/99-cdigen.conf",
    )


def test_a_broken_file_is_an_error_with_its_line(tree: Tree) -> None:
    tree.put(MAIN, "[crio.runtime]\ncdi_spec_dirs = 1\n")
    tree.put(f"{FOLDER}/a.conf", "[crio\n")
    settings = tree.read("cri-o", (1, 34, 0))
    assert finding_keys(settings) == [
        ("error", "config-type", MAIN),
        ("error", "config-syntax", f"{FOLDER}/a.conf"),
    ]
    wrong_type, syntax = (found.message for found in settings.findings)
    assert wrong_type.startswith(f"{MAIN}, line 2: ")
    assert syntax.startswith(f"{FOLDER}/a.conf is not TOML: ")
    assert "line 1" in syntax
