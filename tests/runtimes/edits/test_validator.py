"""cdigen as a required plugin of NRI: the keys, the edited file, and the releases that require no plugins."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from support.hosts.runtime_config import Tree

from cdigen.model.errors import ConfigError
from cdigen.runtimes.edits.plan import DesiredConfig, EditPlan
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


def validator_tables(tree: Tree, runtime: str, release: Release | None) -> dict[str, dict[str, Any]]:
    """Return the validator's table in the changed files, by file name."""
    found = {}
    for change in tree.plan(runtime, release, DESIRED).changes:
        document = tomllib.loads((change.after or b"").decode())
        nri = document["plugins"].get("io.containerd.nri.v1.nri", {}) if runtime == "containerd" else {}
        nri = nri or document.get("crio", {}).get("nri", {})
        if "default_validator" in nri:
            found[Path(change.path).name] = nri["default_validator"]
    return found


@pytest.mark.parametrize("release", [(2, 2, 0), (2, 3, 4)])
def test_containerd_gets_the_validator_in_the_table_of_nri(tree: Tree, release: Release) -> None:
    tree.put(MAIN, HEAD)
    (change,) = tree.plan("containerd", release, DESIRED).changes
    nri = tomllib.loads((change.after or b"").decode())["plugins"]["io.containerd.nri.v1.nri"]
    assert nri == {"disable": False, "default_validator": ALL}


def test_crio_gets_the_validator_with_the_key_names_of_crio(tree: Tree) -> None:
    (document,) = validator_tables(tree, "cri-o", (1, 34, 0)).values()
    assert document == {
        "nri_enable_default_validator": True,
        "nri_validator_required_plugins": ["cdigen"],
        "nri_validator_tolerate_missing_plugins_annotation": TOLERATION,
    }


def test_required_plugins_and_other_keys_of_the_table_are_kept(tree: Tree) -> None:
    table = 'enable = false\nrequired_plugins = ["10-other"]\nreject_oci_hook_adjustment = true\n'
    tree.put(MAIN, f"version = 3\n[{TABLE}]\n{table}")
    (document,) = validator_tables(tree, "containerd", (2, 2, 0)).values()
    required = {"required_plugins": ["10-other", "cdigen"], "reject_oci_hook_adjustment": True}
    assert document == {**ALL, **required}


def test_a_drop_in_lists_all_required_plugins(tree: Tree) -> None:
    tree.put(MAIN, f'{HEAD}[{TABLE}]\nrequired_plugins = ["other"]\n')
    assert validator_tables(tree, "containerd", (2, 2, 0)) == {
        "99-cdigen.toml": {**ALL, "required_plugins": ["other", "cdigen"]}
    }


def test_crios_list_in_an_earlier_file_is_kept(tree: Tree) -> None:
    tree.put("etc/crio/crio.conf", f'[{CRIO_TABLE}]\nnri_validator_required_plugins = ["other"]\n')
    (document,) = validator_tables(tree, "cri-o", (1, 35, 0)).values()
    assert document["nri_validator_required_plugins"] == ["other", "cdigen"]


@pytest.mark.parametrize("listed", ["cdigen", "20-cdigen", "07-cdigen"])
def test_a_plugin_that_is_required_already_is_not_listed_twice(tree: Tree, listed: str) -> None:
    tree.put(MAIN, f'version = 3\n[{TABLE}]\nrequired_plugins = ["{listed}"]\n')
    (document,) = validator_tables(tree, "containerd", (2, 2, 0)).values()
    assert document["required_plugins"] == [listed]


@pytest.mark.parametrize("other", ["not-cdigen", "cdigen2", "2-cdigen"])
def test_a_plugin_with_a_similar_name_is_not_cdigens_plugin(tree: Tree, other: str) -> None:
    tree.put(MAIN, f'version = 3\n[{TABLE}]\nrequired_plugins = ["{other}"]\n')
    (document,) = validator_tables(tree, "containerd", (2, 2, 0)).values()
    assert document["required_plugins"] == [other, "cdigen"]


def test_an_existing_toleration_is_kept(tree: Tree) -> None:
    tree.put(MAIN, f'version = 3\n[{TABLE}]\ntolerate_missing_plugins_annotation = "mine.example/x"\n')
    plan = tree.plan("containerd", (2, 2, 0), DESIRED)
    (document,) = validator_tables(tree, "containerd", (2, 2, 0)).values()
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
def test_a_later_file_that_sets_keys_of_the_validator_is_edited(
    tree: Tree, runtime: str, path: str, content: str
) -> None:
    tree.put(MAIN, HEAD)
    tree.put(path, content)
    release = (2, 2, 0) if runtime == "containerd" else (1, 34, 0)
    assert list(validator_tables(tree, runtime, release)) == [Path(path).name]


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


def test_a_change_of_the_validator_warns_which_pods_do_not_start(tree: Tree) -> None:
    plan = tree.plan("containerd", (2, 2, 0), DESIRED)
    (warning,) = plan.findings
    assert (warning.severity, warning.rule) == ("warning", "nri-required")
    assert "not even for system pods" in warning.message
    assert f'{TOLERATION}: "true"' in warning.message
    tree.apply(plan)
    assert tree.plan("containerd", (2, 2, 0), DESIRED) == EditPlan()


def test_the_warning_for_an_unknown_release_mentions_older_releases(tree: Tree) -> None:
    for runtime in ("containerd", "cri-o"):
        (warning,) = tree.plan(runtime, None, DESIRED).findings
        assert "older releases ignore these keys" in warning.message


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
def test_a_key_of_a_wrong_type_is_refused(tree: Tree, content: str, words: str) -> None:
    tree.put(MAIN, f"version = 3\n{content}")
    with pytest.raises(ConfigError, match=words) as caught:
        tree.plan("containerd", (2, 2, 0), DESIRED)
    assert "/etc/containerd/config.toml" in str(caught.value)
