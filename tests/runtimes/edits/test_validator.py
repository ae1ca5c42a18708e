"""A plugin that NRI requires: what is set for that, where, and which releases cannot be made to."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from support.hosts.runtime_config import Tree

from cdigen.model.errors import ConfigError
from cdigen.runtimes.edits.plan import DesiredConfig, Plan
from cdigen.runtimes.releases import Release

DESIRED = DesiredConfig(spec_dirs=("/etc/cdi", "/var/run/cdi"), nri=True, nri_required=True)
MAIN = "etc/containerd/config.toml"
HEAD = 'version = 3\nimports = ["/etc/containerd/conf.d/*.toml"]\n'
TABLE = 'plugins."io.containerd.nri.v1.nri".default_validator'
CRIO_TABLE = "crio.nri.default_validator"
TOLERATION = "tolerate-missing-plugins.noderesource.dev"
ALL = {
    "enable": True,
    "required_plugins": ["cdigen"],
    "tolerate_missing_plugins_annotation": TOLERATION,
}


def said(tree: Tree, runtime: str, release: Release | None) -> dict[str, dict[str, Any]]:
    """Return what files that are changed say of the validator, by their names."""
    found = {}
    for change in tree.plan(runtime, release, DESIRED).changes:
        document = tomllib.loads((change.after or b"").decode())
        nri = document["plugins"].get("io.containerd.nri.v1.nri", {}) if runtime == "containerd" else {}
        nri = nri or document.get("crio", {}).get("nri", {})
        if "default_validator" in nri:
            found[Path(change.path).name] = nri["default_validator"]
    return found


@pytest.mark.parametrize("release", [(2, 2, 0), (2, 3, 4)])
def test_containerd_gets_its_validator_beside_the_switch_of_nri(tree: Tree, release: Release) -> None:
    tree.put(MAIN, HEAD)
    (change,) = tree.plan("containerd", release, DESIRED).changes
    nri = tomllib.loads((change.after or b"").decode())["plugins"]["io.containerd.nri.v1.nri"]
    assert nri == {"disable": False, "default_validator": ALL}


def test_crio_gets_its_validator_under_its_own_names(tree: Tree) -> None:
    (document,) = said(tree, "cri-o", (1, 34, 0)).values()
    assert document == {
        "nri_enable_default_validator": True,
        "nri_validator_required_plugins": ["cdigen"],
        "nri_validator_tolerate_missing_plugins_annotation": TOLERATION,
    }


def test_plugins_that_are_required_already_stay_so_and_the_rest_of_the_table_too(tree: Tree) -> None:
    table = 'enable = false\nrequired_plugins = ["10-other"]\nreject_oci_hook_adjustment = true\n'
    tree.put(MAIN, f"version = 3\n[{TABLE}]\n{table}")
    (document,) = said(tree, "containerd", (2, 2, 0)).values()
    required = {"required_plugins": ["10-other", "cdigen"], "reject_oci_hook_adjustment": True}
    assert document == {**ALL, **required}


def test_a_drop_in_has_all_plugins_as_lists_are_replaced(tree: Tree) -> None:
    tree.put(MAIN, f'{HEAD}[{TABLE}]\nrequired_plugins = ["other"]\n')
    assert said(tree, "containerd", (2, 2, 0)) == {
        "99-cdigen.toml": {**ALL, "required_plugins": ["other", "cdigen"]}
    }


def test_crios_list_in_an_earlier_file_is_kept(tree: Tree) -> None:
    tree.put("etc/crio/crio.conf", f'[{CRIO_TABLE}]\nnri_validator_required_plugins = ["other"]\n')
    (document,) = said(tree, "cri-o", (1, 35, 0)).values()
    assert document["nri_validator_required_plugins"] == ["other", "cdigen"]


@pytest.mark.parametrize("listed", ["cdigen", "20-cdigen", "07-cdigen"])
def test_a_plugin_that_is_required_already_is_not_listed_twice(tree: Tree, listed: str) -> None:
    tree.put(MAIN, f'version = 3\n[{TABLE}]\nrequired_plugins = ["{listed}"]\n')
    (document,) = said(tree, "containerd", (2, 2, 0)).values()
    assert document["required_plugins"] == [listed]


@pytest.mark.parametrize("other", ["not-cdigen", "cdigen2", "2-cdigen"])
def test_a_plugin_with_a_name_like_ours_is_another(tree: Tree, other: str) -> None:
    tree.put(MAIN, f'version = 3\n[{TABLE}]\nrequired_plugins = ["{other}"]\n')
    (document,) = said(tree, "containerd", (2, 2, 0)).values()
    assert document["required_plugins"] == [other, "cdigen"]


def test_a_toleration_that_is_there_stays(tree: Tree) -> None:
    tree.put(MAIN, f'version = 3\n[{TABLE}]\ntolerate_missing_plugins_annotation = "mine.example/x"\n')
    plan = tree.plan("containerd", (2, 2, 0), DESIRED)
    (document,) = said(tree, "containerd", (2, 2, 0)).values()
    assert document["tolerate_missing_plugins_annotation"] == "mine.example/x"
    assert "mine.example/x" in plan.findings[0].message


@pytest.mark.parametrize(
    ("runtime", "path", "content"),
    [
        ("containerd", "etc/containerd/conf.d/zz.toml", f"version = 3\n[{TABLE}]\nenable = false\n"),
        (
            "cri-o",
            "etc/crio/crio.conf.d/zz.conf",
            f"[{CRIO_TABLE}]\nnri_enable_default_validator = false\n",
        ),
    ],
)
def test_a_file_that_is_read_later_and_speaks_of_the_validator_is_edited_itself(
    tree: Tree, runtime: str, path: str, content: str
) -> None:
    tree.put(MAIN, HEAD)
    tree.put(path, content)
    release = (2, 2, 0) if runtime == "containerd" else (1, 34, 0)
    assert list(said(tree, runtime, release)) == [Path(path).name]


@pytest.mark.parametrize(
    ("runtime", "release", "words"),
    [
        ("containerd", (1, 7, 34), r"containerd 1\.7\.34 has no validator"),
        ("containerd", (2, 1, 9), r"containerd 2\.1\.9 has no validator"),
        ("cri-o", (1, 33, 2), r"CRI-O 1\.33\.2 has no validator"),
        ("cri-o", (1, 25, 0), "has no NRI"),
    ],
)
def test_a_release_without_a_validator_is_refused(
    tree: Tree, runtime: str, release: Release, words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        tree.plan(runtime, release, DESIRED)
    assert "\n" not in str(caught.value)


def test_who_is_blocked_and_who_is_not_is_said_with_the_change_and_only_with_it(tree: Tree) -> None:
    plan = tree.plan("containerd", (2, 2, 0), DESIRED)
    (warning,) = plan.findings
    assert (warning.severity, warning.rule) == ("warning", "nri-required")
    assert "system pods included" in warning.message
    assert f'{TOLERATION}: "true"' in warning.message
    tree.apply(plan)
    assert tree.plan("containerd", (2, 2, 0), DESIRED) == Plan()


def test_of_a_release_that_is_not_known_it_is_said_that_it_may_pass_over_it(tree: Tree) -> None:
    for runtime in ("containerd", "cri-o"):
        (warning,) = tree.plan(runtime, None, DESIRED).findings
        assert "older ones ignore all of this" in warning.message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (f"[{TABLE}]\nenable = 1\n", "enable is not true or false"),
        (f'[{TABLE}]\nrequired_plugins = "cdigen"\n', "required_plugins is not a list of texts"),
        (f"[{TABLE}]\nrequired_plugins = [1]\n", "required_plugins is not a list of texts"),
        (f"[{TABLE}]\ntolerate_missing_plugins_annotation = true\n", "annotation is not a text"),
        ('[plugins."io.containerd.nri.v1.nri"]\ndefault_validator = "on"\n', "is not a table"),
    ],
)
def test_a_key_that_the_runtime_could_not_read_is_refused(tree: Tree, content: str, words: str) -> None:
    tree.put(MAIN, f"version = 3\n{content}")
    with pytest.raises(ConfigError, match=words) as caught:
        tree.plan("containerd", (2, 2, 0), DESIRED)
    assert "/etc/containerd/config.toml" in str(caught.value)
