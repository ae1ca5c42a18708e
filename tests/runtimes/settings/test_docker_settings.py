from __future__ import annotations

import json

import pytest
from support.hosts.runtime_config import ALICE, BOTH, Tree, finding_keys

FILE = "/etc/docker/daemon.json"
UNIT = "/usr/lib/systemd/system/docker.service"


def unit(arguments: str) -> str:
    return f"[Service]\nExecStart=/usr/sbin/dockerd -H fd:// {arguments}\n"


@pytest.mark.parametrize(
    ("release", "is_on", "nri"),
    [
        ((24, 0, 7), False, None),
        ((25, 0, 0), False, None),
        ((28, 1, 1), False, None),
        ((28, 2, 0), True, None),
        ((28, 5, 2), True, None),
        ((29, 2, 0), True, False),
    ],
)
def test_the_defaults_depend_on_the_release(
    tree: Tree, *, release: tuple[int, int, int], is_on: bool, nri: bool | None
) -> None:
    settings = tree.read("docker", release)
    assert (settings.cdi_enabled, settings.nri_enabled) == (is_on, nri)
    assert settings.has_dirs_key is (release >= (25, 0, 0))
    assert (settings.spec_dirs, settings.files, settings.edited_file) == (BOTH, (), FILE)
    assert settings.follows_links is (release >= (29, 2, 0))


@pytest.mark.parametrize("release", [(27, 5, 0), (28, 5, 2)])
@pytest.mark.parametrize("value", [True, False])
def test_the_cdi_feature_overrides_the_default_of_every_release(
    tree: Tree, *, release: tuple[int, int, int], value: bool
) -> None:
    tree.put(FILE, json.dumps({"features": {"cdi": value}}))
    settings = tree.read("docker", release)
    assert settings.cdi_enabled is value
    assert settings.source("cdi") == FILE


def test_the_directories_of_the_file_apply(tree: Tree) -> None:
    tree.put(FILE, '{"cdi-spec-dirs": ["/a", "/b"], "debug": true}')
    settings = tree.read("docker", (28, 5, 2))
    assert (settings.spec_dirs, settings.source("spec_dirs"), settings.files) == (("/a", "/b"), FILE, (FILE,))


def test_one_empty_directory_disables_cdi(tree: Tree) -> None:
    tree.put(FILE, '{"cdi-spec-dirs": [""]}')
    settings = tree.read("docker", (28, 5, 2))
    assert (settings.spec_dirs, settings.cdi_enabled) == ((), False)


@pytest.mark.parametrize("content", [b"", b" \n", b"null", b"{}", b"\xef\xbb\xbf{}", b'{"features": null}'])
def test_a_file_without_cdi_keys_does_not_change_the_defaults(tree: Tree, content: bytes) -> None:
    tree.put(FILE, content)
    settings = tree.read("docker", (28, 5, 2))
    assert (settings.spec_dirs, settings.cdi_enabled, settings.findings) == (BOTH, True, ())


# dockerd 28.5.2 --validate refused each of these files.
@pytest.mark.parametrize(
    ("text", "rule", "line"),
    [
        ('{\n"features": {"cdi": true}\n,}', "config-syntax", 3),
        ('{\n "cdi-spec-dirs": "/a"\n}', "config-type", 2),
        ('{"cdi-spec-dirs": [1]}', "config-type", 1),
        ('{\n\n"features": {"cdi": "true"}}', "config-type", 3),
        ('{"features": []}', "config-type", 1),
        ('{"features": {"other": 1}}', "config-type", None),
        ('{"Features": {"cdi": true}}', "config-unknown", 1),
        ('{"nri-opts": {"enable": true}}', "config-unknown", 1),
        ("{} x", "config-syntax", 1),
        ("[]", "config-syntax", 1),
        ("// a comment\n{}", "config-syntax", 1),
        ('{"debug": NaN}', "config-syntax", None),
        ("[" * 20_000, "config-syntax", None),
    ],
)
def test_a_file_that_dockerd_refuses_is_an_error(tree: Tree, text: str, rule: str, line: int | None) -> None:
    tree.put(FILE, text)
    settings = tree.read("docker", (28, 5, 2))
    assert finding_keys(settings) == [("error", rule, FILE)]
    message = settings.findings[0].message
    assert message.startswith(FILE)
    assert "dockerd does not start" in message
    if line:
        assert f"line {line}" in message


def test_arguments_apply_if_the_file_does_not_set_the_key(tree: Tree) -> None:
    tree.put(UNIT, unit("--cdi-spec-dir=/a --cdi-spec-dir /b --feature cdi=false --feature other=true"))
    settings = tree.read("docker", (28, 5, 2))
    assert (settings.spec_dirs, settings.cdi_enabled) == (("/a", "/b"), False)
    assert settings.source("spec_dirs") == f"the command line of {UNIT}"
    assert settings.findings == ()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [("--cdi-spec-dir /b", '{"cdi-spec-dirs": ["/a"]}'), ("--feature cdi=true", '{"features": {"x": true}}')],
)
def test_an_option_in_both_the_file_and_the_arguments_is_an_error(
    tree: Tree, arguments: str, text: str
) -> None:
    tree.put(UNIT, unit(arguments))
    tree.put(FILE, text)
    assert finding_keys(tree.read("docker", (28, 5, 2))) == [("error", "config-twice", FILE)]


def test_a_file_in_the_arguments_replaces_the_default_file_and_must_exist(tree: Tree) -> None:
    tree.put(UNIT, unit("--config-file /etc/other.json"))
    assert finding_keys(tree.read("docker", (28, 5, 2))) == [("error", "config-missing", "/etc/other.json")]
    tree.put("/etc/other.json", '{"cdi-spec-dirs": ["/o"]}')
    settings = tree.read("docker", (28, 5, 2))
    assert (settings.spec_dirs, settings.edited_file) == (("/o",), "/etc/other.json")


def test_a_rootless_daemon_has_its_own_file_and_from_29_2_on_its_own_directories(tree: Tree) -> None:
    tree.put(FILE, '{"cdi-spec-dirs": ["/root-only"]}')
    user_file = "/home/alice/.config/docker/daemon.json"
    tree.put(user_file, '{"features": {"cdi": true}}')
    old, new = tree.read("docker", (28, 5, 2), ALICE), tree.read("docker", (29, 2, 0), ALICE)
    assert (old.files, old.spec_dirs, old.rootless) == ((user_file,), BOTH, True)
    assert new.spec_dirs == (*BOTH, "/home/alice/.config/cdi", "/run/user/1234/cdi")


# The values were read in contrib/dockerd-rootless.sh at each tag.
@pytest.mark.parametrize(
    ("release", "sees_defaults", "sees_others"),
    [
        ((25, 0, 7), False, False),
        ((25, 0, 8), True, False),
        ((26, 1, 5), False, False),
        ((27, 3, 1), False, False),
        ((27, 4, 0), True, False),
        ((29, 1, 5), True, False),
        ((29, 2, 0), True, True),
    ],
)
def test_a_rootless_daemon_sees_the_spec_directories_of_its_release(
    tree: Tree, *, release: tuple[int, int, int], sees_defaults: bool, sees_others: bool
) -> None:
    dirs = (*BOTH, "/etc/other", "/run/other", "/home/alice/cdi", "/etcetera")
    tree.put("/home/alice/.config/docker/daemon.json", json.dumps({"cdi-spec-dirs": dirs}))
    settings = tree.read("docker", release, ALICE)
    seen = (*(BOTH if sees_defaults else ()), *(dirs[2:4] if sees_others else ()), *dirs[4:])
    assert settings.spec_dirs == seen
    assert settings.hidden_dirs == tuple(path for path in dirs if path not in seen)
    assert tree.read("docker", release).hidden_dirs == ()


def test_nri_is_read_if_the_release_supports_it(tree: Tree) -> None:
    tree.put(FILE, '{"nri-opts": {"enable": true}}')
    settings = tree.read("docker", (29, 2, 0))
    assert (settings.nri_enabled, settings.source("nri")) == (True, FILE)
