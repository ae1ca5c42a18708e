"""The changes that cdigen plans for a runtime's configuration depend on the release and the present files."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from support.hosts.runtime_config import ALICE, Tree

from cdigen.model.errors import ConfigError
from cdigen.runtimes.edits import docker
from cdigen.runtimes.edits.plan import DesiredConfig, merged_dirs
from cdigen.runtimes.releases import Release

DESIRED = DesiredConfig(spec_dirs=("/etc/cdi", "/var/run/cdi"))
WITH_NRI = DesiredConfig(spec_dirs=DESIRED.spec_dirs, nri=True)
MAIN = "etc/containerd/config.toml"
IMPORTING = 'imports = ["/etc/containerd/conf.d/*.toml"]\n'
OLD_CRI = 'plugins."io.containerd.grpc.v1.cri"'
NEW_CRI = 'plugins."io.containerd.cri.v1.runtime"'


def documents(
    tree: Tree, runtime: str, release: Release | None, desired: DesiredConfig = DESIRED
) -> dict[str, Any]:
    """Return the documents of the plan, by their file names."""
    changes = tree.plan(runtime, release, desired).changes
    return {Path(one.path).name: tomllib.loads((one.after or b"").decode()) for one in changes}


@pytest.mark.parametrize(
    ("present", "desired", "merged"),
    [
        ((), ("/a", "/b"), ("/a", "/b")),
        (("/etc/cdi",), ("/etc/cdi", "/var/run/cdi"), ("/etc/cdi", "/var/run/cdi")),
        (("/x", "/etc/cdi"), ("/etc/cdi", "/var/run/cdi"), ("/x", "/etc/cdi", "/var/run/cdi")),
        (("/a", "/b", "/c"), ("/a", "/c"), ("/a", "/b", "/c")),
        (("/b", "/a", "/x"), ("/a", "/b"), ("/x", "/a", "/b")),
        (("/etc/cdi/", "/run/cdi"), ("/etc/cdi", "/var/run/cdi"), ("/etc/cdi/", "/run/cdi")),
    ],
)
def test_no_directory_is_lost_and_the_last_desired_directory_has_priority(
    present: tuple[str, ...], desired: tuple[str, ...], merged: tuple[str, ...]
) -> None:
    assert merged_dirs(present, desired) == merged


@pytest.mark.parametrize("release", [(5, 5, 0), (5, 8, 6), None])
def test_podman_gets_a_new_drop_in(tree: Tree, release: Release | None) -> None:
    tree.put("etc/containers/containers.conf", "[engine]\nruntime = 'crun'\n")
    (change,) = tree.plan("podman", release, DESIRED).changes
    assert change.path.startswith("/etc/containers/containers.conf.d/")
    assert change.before is None
    document = tomllib.loads((change.after or b"").decode())
    assert document == {"engine": {"cdi_spec_dirs": ["/etc/cdi", "/var/run/cdi"]}}


def test_podman_before_5_5_has_nothing_to_configure(tree: Tree) -> None:
    plan = tree.plan("podman", (4, 3, 1), DESIRED)
    assert plan.changes == ()
    assert "4.3.1" in plan.findings[0].message


def test_a_directory_besides_the_default_directories_is_refused_for_podman_before_5_5(tree: Tree) -> None:
    with pytest.raises(ConfigError, match=r"4\.3\.1 always reads /etc/cdi and /var/run/cdi"):
        tree.plan("podman", (4, 3, 1), DesiredConfig(spec_dirs=("/srv/cdi",)))


def test_podman_keeps_its_configured_directories(tree: Tree) -> None:
    tree.put("etc/containers/containers.conf", '[engine]\ncdi_spec_dirs = ["/srv/cdi"]\n')
    (document,) = documents(tree, "podman", (5, 8, 0)).values()
    assert document["engine"]["cdi_spec_dirs"] == ["/srv/cdi", "/etc/cdi", "/var/run/cdi"]


def test_podman_is_not_changed_if_its_files_have_the_directories(tree: Tree) -> None:
    tree.put("etc/containers/containers.conf", '[engine]\ncdi_spec_dirs = ["/etc/cdi", "/run/cdi"]\n')
    assert tree.plan("podman", (5, 8, 0), DESIRED).changes == ()


def test_a_later_drop_in_that_sets_the_directories_is_edited(tree: Tree) -> None:
    path = "etc/containers/containers.conf.d/zz.conf"
    tree.put(path, '# mine\n[engine]\ncdi_spec_dirs = ["/srv/cdi"]\n')
    (change,) = tree.plan("podman", (5, 8, 0), DESIRED).changes
    assert change.path == f"/{path}"
    assert (change.after or b"").startswith(b"# mine\n")


def test_a_plan_with_nri_is_refused_for_podman(tree: Tree) -> None:
    with pytest.raises(ConfigError, match="NRI"):
        tree.plan("podman", (5, 8, 0), WITH_NRI)


def test_docker_before_28_2_needs_the_cdi_feature(tree: Tree) -> None:
    (change,) = tree.plan("docker", (27, 5, 0), DESIRED).changes
    assert list(change.keys) == ["features.cdi", "cdi-spec-dirs"]


def test_docker_from_28_2_on_needs_the_cdi_feature_only_if_it_is_off(tree: Tree) -> None:
    (change,) = tree.plan("docker", (28, 5, 2), DESIRED).changes
    assert list(change.keys) == ["cdi-spec-dirs"]
    tree.put("etc/docker/daemon.json", '{"features": {"cdi": false}}')
    (change,) = tree.plan("docker", (28, 5, 2), DESIRED).changes
    assert list(change.keys) == ["features.cdi", "cdi-spec-dirs"]


def test_a_docker_release_that_reads_no_specs_is_refused(tree: Tree) -> None:
    with pytest.raises(ConfigError, match=r"24\.0\.7 reads no CDI specs"):
        tree.plan("docker", (24, 0, 7), DESIRED)


def test_a_plan_for_docker_warns_if_the_restart_stops_containers(tree: Tree) -> None:
    assert "no-live-restore" in {
        finding.rule for finding in tree.plan("docker", (28, 5, 2), DESIRED).findings
    }
    tree.put("etc/docker/daemon.json", '{"live-restore": true}')
    assert tree.plan("docker", (28, 5, 2), DESIRED).findings == ()


def test_an_option_of_dockers_command_line_is_not_set_in_the_file(tree: Tree) -> None:
    # dockerd does not start if both the file and the command line set an option.
    unit = "[Service]\nExecStart=/usr/sbin/dockerd --cdi-spec-dir /etc/cdi --cdi-spec-dir /var/run/cdi\n"
    tree.put("usr/lib/systemd/system/docker.service", unit)
    assert tree.plan("docker", (28, 5, 2), DESIRED).changes == ()
    tree.put("usr/lib/systemd/system/docker.service", unit.replace("/var/run/cdi", "/srv/cdi"))
    with pytest.raises(ConfigError, match=r"the command line of .*docker\.service"):
        tree.plan("docker", (28, 5, 2), DESIRED)


def test_crio_gets_a_drop_in_with_the_directories_and_nri(tree: Tree) -> None:
    (document,) = documents(tree, "cri-o", (1, 30, 0), WITH_NRI).values()
    assert document["crio"] == {
        "runtime": {"cdi_spec_dirs": ["/etc/cdi", "/var/run/cdi"]},
        "nri": {"enable_nri": True},
    }


def test_containerd_1_7_gets_its_keys_in_the_main_file(tree: Tree) -> None:
    tree.put(MAIN, f"version = 2\n{IMPORTING}")
    document = documents(tree, "containerd", (1, 7, 24), WITH_NRI)["config.toml"]
    assert document["plugins"] == {
        "io.containerd.grpc.v1.cri": {"enable_cdi": True, "cdi_spec_dirs": ["/etc/cdi", "/var/run/cdi"]},
        "io.containerd.nri.v1.nri": {"disable": False},
    }


def test_containerd_1_7_gets_its_keys_in_the_last_file_with_the_plugins_table(tree: Tree) -> None:
    # The last table replaces all other tables, so containerd would ignore a table in the main file.
    tree.put(MAIN, f"version = 2\n{IMPORTING}[{OLD_CRI}]\nx = 1\n")
    tree.put("etc/containerd/conf.d/user.toml", f"[{OLD_CRI}.cni]\nbin_dir = '/b'\n")
    document = documents(tree, "containerd", (1, 7, 24))["user.toml"]
    cri = document["plugins"]["io.containerd.grpc.v1.cri"]
    assert (cri["cni"], cri["enable_cdi"]) == ({"bin_dir": "/b"}, True)
    assert "version" not in document


@pytest.mark.parametrize(("version", "plugin"), [(2, OLD_CRI), (3, NEW_CRI), (4, NEW_CRI)])
def test_containerd_2_gets_a_drop_in_with_the_version_of_the_main_file(
    tree: Tree, version: int, plugin: str
) -> None:
    tree.put(MAIN, f"version = {version}\n{IMPORTING}")
    (change,) = tree.plan("containerd", (2, 3, 0), DESIRED).changes
    assert change.path.startswith("/etc/containerd/conf.d/")
    text = (change.after or b"").decode()
    assert f"version = {version}\n" in text
    assert f'[{plugin}]\ncdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]\n' in text


@pytest.mark.parametrize("release", [(2, 3, 5), (2, 9, 0), None])
def test_a_configuration_of_version_4_is_written_like_version_3(tree: Tree, release: Release | None) -> None:
    tree.put(MAIN, f"version = 4\n[{NEW_CRI}]\nenable_cdi = false\n")
    document = documents(tree, "containerd", release)["config.toml"]
    assert document["version"] == 4
    assert document["plugins"]["io.containerd.cri.v1.runtime"]["enable_cdi"] is True


def test_containerd_2_without_imports_gets_its_keys_in_the_main_file(tree: Tree) -> None:
    tree.put(MAIN, f"version = 3\n[{NEW_CRI}]\nenable_cdi = false\n")
    document = documents(tree, "containerd", (2, 1, 9))["config.toml"]
    assert document["plugins"]["io.containerd.cri.v1.runtime"] == {
        "enable_cdi": True,
        "cdi_spec_dirs": ["/etc/cdi", "/var/run/cdi"],
    }


def test_containerd_without_a_configuration_gets_a_file_with_the_version_of_its_release(tree: Tree) -> None:
    assert documents(tree, "containerd", (2, 1, 9))["config.toml"]["version"] == 3
    assert documents(tree, "containerd", (1, 7, 24))["config.toml"]["version"] == 2
    document = documents(tree, "containerd", None)["config.toml"]
    assert document["version"] == 2  # 1.7 and 2.x read version 2
    assert document["plugins"]["io.containerd.grpc.v1.cri"]["enable_cdi"] is True


def test_a_later_import_that_sets_the_directories_is_edited(tree: Tree) -> None:
    tree.put(MAIN, 'version = 3\nimports = ["/srv/containerd.toml"]\n')
    tree.put("srv/containerd.toml", f'version = 3\n[{NEW_CRI}]\ncdi_spec_dirs = ["/x"]\n')
    document = documents(tree, "containerd", (2, 1, 9))["containerd.toml"]
    dirs = document["plugins"]["io.containerd.cri.v1.runtime"]["cdi_spec_dirs"]
    assert dirs == ["/x", "/etc/cdi", "/var/run/cdi"]


@pytest.mark.parametrize("name", ["cri", "io.containerd.grpc.v1.cri"])
def test_a_containerd_configuration_that_disables_cri_is_refused(tree: Tree, name: str) -> None:
    # Docker's containerd package has this file with the short name. If the file also had a version,
    # containerd would not start.
    tree.put(MAIN, f'disabled_plugins = ["{name}"]\n')
    with pytest.raises(ConfigError, match="disables the CRI plugin"):
        tree.plan("containerd", (2, 1, 9), DESIRED)


def test_a_configuration_of_version_1_is_refused(tree: Tree) -> None:
    tree.put(MAIN, "[plugins.cri]\nx = 1\n")
    with pytest.raises(ConfigError, match="version 1"):
        tree.plan("containerd", (1, 7, 24), DESIRED)


def test_imports_of_a_higher_version_than_the_main_file_are_refused(tree: Tree) -> None:
    tree.put(MAIN, f"version = 2\n{IMPORTING}")
    tree.put("etc/containerd/conf.d/a.toml", "version = 3\n")
    with pytest.raises(ConfigError, match=r"a\.toml has version 3 and .* has version 2"):
        tree.plan("containerd", (2, 1, 9), DESIRED)


@pytest.mark.parametrize(("release", "rules"), [((2, 3, 5), []), (None, ["config-version-order"])])
def test_imports_of_a_higher_version_are_left_to_a_release_that_migrates_each_file(
    tree: Tree, release: Release | None, rules: list[str]
) -> None:
    tree.put(MAIN, f"version = 2\n{IMPORTING}")
    tree.put("etc/containerd/conf.d/a.toml", "version = 4\n")
    plan = tree.plan("containerd", release, DESIRED)
    assert [finding.rule for finding in plan.findings] == rules
    assert all(b"version = 2\n" in (change.after or b"") for change in plan.changes)


def test_containerd_1_6_is_refused(tree: Tree) -> None:
    with pytest.raises(ConfigError, match=r"1\.6\.20 reads no CDI specs"):
        tree.plan("containerd", (1, 6, 20), DESIRED)


@pytest.mark.parametrize(
    ("runtime", "release"),
    [
        ("podman", (5, 8, 6)),
        ("docker", (27, 0, 0)),
        ("docker", None),
        ("containerd", (1, 7, 24)),
        ("containerd", (2, 1, 9)),
        ("containerd", None),
        ("cri-o", (1, 28, 0)),
    ],
)
def test_a_second_plan_has_no_changes(tree: Tree, runtime: str, release: Release | None) -> None:
    desired = WITH_NRI if runtime in {"containerd", "cri-o"} else DESIRED
    tree.apply(tree.plan(runtime, release, desired))
    assert tree.plan(runtime, release, desired).changes == ()


def test_a_rootless_docker_is_not_configured_for_directories_that_it_does_not_see(tree: Tree) -> None:
    old, new = (27, 3, 1), (27, 4, 0)
    own = DesiredConfig(spec_dirs=("/home/alice/cdi",))
    with pytest.raises(ConfigError, match="/etc/cdi, /var/run/cdi: a rootless dockerd of this release"):
        docker.plan(tree.read("docker", old, ALICE), old, DESIRED, lambda _: None)
    (change,) = docker.plan(tree.read("docker", old, ALICE), old, own, lambda _: None).changes
    assert change.path == "/home/alice/.config/docker/daemon.json"
    assert b'"/home/alice/cdi"' in (change.after or b"")
    assert docker.plan(tree.read("docker", new, ALICE), new, DESIRED, lambda _: None).changes
