"""Real shells complete exactly the valid values of the commands."""

import argparse
import json
import sys

import pytest
from support.installation.shells import Shells
from support.paths import REPOSITORY
from support.values.unhealthy_gpus import FELL, example, save, with_causes

from cdigen.cli.main import COMMANDS, command_parser

SHELLS = ("bash", "fish", "zsh")
# The shells of tests that complete many lines. zsh is omitted, because it needs half a second to start.
THOROUGH = ("bash", "fish")


def shown_options(command: str) -> tuple[argparse.Action, ...]:
    return tuple(
        action
        for action in command_parser(command)._actions
        if action.option_strings and action.help != argparse.SUPPRESS
    )


def long_options(command: str) -> set[str]:
    return {
        name for action in shown_options(command) for name in action.option_strings if name.startswith("--")
    }


@pytest.fixture(scope="module")
def shells(tmp_path_factory: pytest.TempPathFactory) -> Shells:
    """Return shells in a home with a file and a folder, on a host that has three devices of two kinds.

    The first device is unhealthy, and is still a completion.
    """
    top = tmp_path_factory.mktemp("shells")
    for folder in ("home/folder", "programs", "specs"):
        (top / folder).mkdir(parents=True)
    (top / "home/file.json").write_text("{}\n")
    for kind, names in (("nvidia.com/gpu", ("0", "0:1")), ("amd.com/gpu", ("all",))):
        devices = [{"name": name, "containerEdits": {"env": ["A=1"]}} for name in names]
        spec = {"cdiVersion": "0.5.0", "kind": kind, "devices": devices}
        (top / "specs" / f"{kind.replace('/', '-')}.json").write_text(json.dumps(spec))
    # No runtime loads this spec. Its device name imitates a line of `cdigen list` for a usable device.
    hostile = [{"name": "$(touch${IFS}owned)  usable  ", "containerEdits": {"env": ["A=1"]}}]
    spec = {"cdiVersion": "0.5.0", "kind": "vendor.com/gpu", "devices": hostile}
    (top / "specs/hostile.json").write_text(json.dumps(spec))
    save(top, with_causes(example(), 0, FELL))
    (top / "config.yaml").write_text(f"daemon: {{run_dir: {top}/run/cdigen}}\n")
    program = top / "programs/cdigen"
    # This program runs cdigen with the devices of the test.
    program.write_text(
        f'#!/bin/sh\nPYTHONPATH="{REPOSITORY}" exec {sys.executable} -m cdigen "$@" '
        f"--config {top}/config.yaml --spec-dir {top}/specs\n"
    )
    program.chmod(0o755)
    return Shells(REPOSITORY / "etc/completions", top / "programs", top / "home")


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("line", ["cdigen doctor --device ", "cdigen list --kind "])
def test_a_device_name_in_a_spec_is_never_executed(shells: Shells, shell: str, line: str) -> None:
    offered = shells.offers(shell, line)
    assert any(word.startswith("nvidia.com/gpu") for word in offered)
    assert not any("owned" in word for word in offered)
    assert not (shells.home / "owned").exists()


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_offers_the_commands(shells: Shells, shell: str) -> None:
    assert shells.offers(shell, "cdigen ") == {*COMMANDS, "help"}
    assert shells.offers(shell, "cdigen help ") == set(COMMANDS)


@pytest.mark.parametrize("shell", THOROUGH)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_shell_offers_only_the_options_of_the_command(shells: Shells, shell: str, command: str) -> None:
    assert shells.offers(shell, f"cdigen {command} --") == long_options(command)


def test_zsh_offers_only_the_options_of_the_command(shells: Shells) -> None:
    assert shells.offers("zsh", "cdigen generate --") == long_options("generate")


@pytest.mark.parametrize("shell", THOROUGH)
def test_a_shell_offers_the_values_of_an_option(shells: Shells, shell: str) -> None:
    for command in COMMANDS:
        for action in (action for action in shown_options(command) if action.choices):
            line = f"cdigen {command} {action.option_strings[-1]} "
            assert shells.offers(shell, line) == set(action.choices or ()), line


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("cdigen configure ", {"containerd", "crio", "docker", "podman"}),
        ("cdigen generate --layout ", {"auto", "files", "hwcaps", "view"}),
        ("cdigen doctor --for podman --for d", {"docker"}),
        ("cdigen list --kind ", {"amd.com/gpu", "nvidia.com/gpu"}),
        ("cdigen doctor --device ", {"amd.com/gpu=all", "nvidia.com/gpu=0", "nvidia.com/gpu=0:1"}),
        ("cdigen docker-args ", {"amd.com/gpu=all", "nvidia.com/gpu=0", "nvidia.com/gpu=0:1"}),
        ("cdigen docker-args amd.com/gpu=all n", {"nvidia.com/gpu=0", "nvidia.com/gpu=0:1"}),
        ("cdigen health --mark ", {"amd.com/gpu=all", "nvidia.com/gpu=0", "nvidia.com/gpu=0:1"}),
        ("cdigen doctor --user roo", {"root"}),
        (
            "cdigen generate --target docker-2",
            {"docker-25.0", "docker-26.1", "docker-27.4", "docker-28.0", "docker-28.1", "docker-29.2"},
        ),
    ],
)
def test_a_shell_offers_runtimes_and_devices_and_users_of_this_host(
    shells: Shells, shell: str, line: str, offered: set[str]
) -> None:
    assert shells.offers(shell, line) == offered


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_offers_files_for_file_arguments_and_folders_for_folder_options(
    shells: Shells, shell: str
) -> None:
    def offers(line: str) -> set[str]:
        return {name.rstrip("/") for name in shells.offers(shell, line) if name[:2] in {"fi", "fo"}}

    assert offers("cdigen validate f") == {"file.json", "folder"}
    assert offers("cdigen validate file.json f") == {"file.json", "folder"}
    assert offers("cdigen generate --output-dir f") == {"folder"}


@pytest.mark.parametrize("shell", ["bash", "zsh"])
@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("cdigen gen", "cdigen generate "),
        ("cdigen generate --layout=h", "cdigen generate --layout=hwcaps "),
        # = and : separate words in bash.
        ("cdigen doctor --device nvidia.com/gpu=0:", "cdigen doctor --device nvidia.com/gpu=0:1 "),
        ("cdigen doctor --device=amd", "cdigen doctor --device=amd.com/gpu=all "),
        ("cdigen doctor --bundle fo", "cdigen doctor --bundle folder/"),
    ],
)
def test_the_tab_key_completes_a_partial_word(shells: Shells, shell: str, typed: str, line: str) -> None:
    assert shells.line_after_tab(shell, typed) == line
