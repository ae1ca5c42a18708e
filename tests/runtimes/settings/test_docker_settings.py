from __future__ import annotations

import json

import pytest
from support.hosts.runtime_config import ALICE, BOTH, Tree, said

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
def test_the_defaults_are_those_of_the_release(
    tree: Tree, *, release: tuple[int, int, int], is_on: bool, nri: bool | None
) -> None:
    settings = tree.read("docker", release)
    assert (settings.cdi_enabled, settings.nri_enabled) == (is_on, nri)
    assert settings.has_dirs_key is (release >= (25, 0, 0))
    assert (settings.spec_dirs, settings.files, settings.edited_file) == (BOTH, (), FILE)
    assert settings.follows_links is (release >= (29, 2, 0))


@pytest.mark.parametrize("release", [(27, 5, 0), (28, 5, 2)])
@pytest.mark.parametrize("wish", [True, False])
def test_the_feature_decides_in_every_release(
    tree: Tree, *, release: tuple[int, int, int], wish: bool
) -> None:
    tree.put(FILE, json.dumps({"features": {"cdi": wish}}))
    settings = tree.read("docker", release)
    assert settings.cdi_enabled is wish
    assert settings.source("cdi") == FILE


def test_the_directories_of_the_file_count(tree: Tree) -> None:
    tree.put(FILE, '{"cdi-spec-dirs": ["/a", "/b"], "debug": true}')
    settings = tree.read("docker", (28, 5, 2))
    assert (settings.spec_dirs, settings.source("spec_dirs"), settings.files) == (("/a", "/b"), FILE, (FILE,))


def test_one_empty_directory_switches_cdi_off(tree: Tree) -> None:
    tree.put(FILE, '{"cdi-spec-dirs": [""]}')
    settings = tree.read("docker", (28, 5, 2))
    assert (settings.spec_dirs, settings.cdi_enabled) == ((), False)


@pytest.mark.parametrize("content", [b"", b" \n", b"null", b"{}", b"\xef\xbb\xbf{}", b'{"features": null}'])
def test_what_says_nothing_leaves_the_defaults(tree: Tree, content: bytes) -> None:
    tree.put(FILE, content)
    settings = tree.read("docker", (28, 5, 2))
    assert (settings.spec_dirs, settings.cdi_enabled, settings.findings) == (BOTH, True, ())


# dockerd 28.5.2 --validate refused every one of these.
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
    assert said(settings) == [("error", rule, FILE)]
    message = settings.findings[0].message
    assert message.startswith(FILE)
    assert "dockerd does not start" in message
    if line:
        assert f"line {line}" in message


def test_arguments_count_where_the_file_is_silent(tree: Tree) -> None:
    tree.put(UNIT, unit("--cdi-spec-dir=/a --cdi-spec-dir /b --feature cdi=false --feature other=true"))
    settings = tree.read("docker", (28, 5, 2))
    assert (settings.spec_dirs, settings.cdi_enabled) == (("/a", "/b"), False)
    assert settings.source("spec_dirs") == f"the command line of {UNIT}"
    assert settings.findings == ()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [("--cdi-spec-dir /b", '{"cdi-spec-dirs": ["/a"]}'), ("--feature cdi=true", '{"features": {"x": true}}')],
)
def test_what_file_and_arguments_both_set_keeps_dockerd_from_starting(
    tree: Tree, arguments: str, text: str
) -> None:
    tree.put(UNIT, unit(arguments))
    tree.put(FILE, text)
    assert said(tree.read("docker", (28, 5, 2))) == [("error", "config-twice", FILE)]


def test_the_file_may_be_another_and_must_be_there_then(tree: Tree) -> None:
    tree.put(UNIT, unit("--config-file /etc/other.json"))
    assert said(tree.read("docker", (28, 5, 2))) == [("error", "config-missing", "/etc/other.json")]
    tree.put("/etc/other.json", '{"cdi-spec-dirs": ["/o"]}')
    settings = tree.read("docker", (28, 5, 2))
    assert (settings.spec_dirs, settings.edited_file) == (("/o",), "/etc/other.json")


def test_a_rootless_daemon_has_a_file_and_from_29_2_on_directories_of_its_own(tree: Tree) -> None:
    tree.put(FILE, '{"cdi-spec-dirs": ["/root-only"]}')
    mine = "/home/alice/.config/docker/daemon.json"
    tree.put(mine, '{"features": {"cdi": true}}')
    old, new = tree.read("docker", (28, 5, 2), ALICE), tree.read("docker", (29, 2, 0), ALICE)
    assert (old.files, old.spec_dirs, old.rootless) == ((mine,), BOTH, True)
    assert new.spec_dirs == (*BOTH, "/home/alice/.config/cdi", "/run/user/1234/cdi")


def test_nri_is_read_where_the_release_has_it(tree: Tree) -> None:
    tree.put(FILE, '{"nri-opts": {"enable": true}}')
    settings = tree.read("docker", (29, 2, 0))
    assert (settings.nri_enabled, settings.source("nri")) == (True, FILE)
