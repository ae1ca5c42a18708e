"""Every command rejects an argument whose path is missing, and an argument that has no effect."""

import json
from pathlib import Path

import pytest
from support.command.fixtures import Run
from support.command.resolve import EXAMPLE
from support.paths import REPOSITORY

from cdigen.cli.main import COMMANDS, command_parser

SPEC = REPOSITORY / "examples/specs/debian13-8xh100.json"
NOWHERE = "/nowhere/at-all"

# A nonsense value for each metavar of an option.
NONSENSE = {
    "DIR": NOWHERE,
    "FILE": f"{NOWHERE}/x",
    "PATH": "relative",
    "NAME": "no such",
    "DEVICE": "no such",
    "TEXT": "nonsense",
    "RUNTIME": "podman-99",
    "VERSION": "99.0.0",
    "KIND": "example.com/nothing",
    "NAMING": "nonsense",
    "KEY=VALUE": "nonsense",
    "SOURCE:PATH": "nonsense",
    "auto|off|PATH": NOWHERE,
    None: "nonsense",
}
# Options that accept any value, such as names of other programs, a path in containers, a folder that is
# created, or a device of the daemon.
FREE = {
    "--namespace",
    "--runtime-handler",
    "--container",
    "--container-driver-root",
    "--output-dir",
    "--svg",
    "--clear",
}
# Services wait for missing paths; install-service creates its folders.
WAITING = {"run", "nri", "kubelet", "extender", "install-service"}
ARGUMENTS = {"validate": (SPEC, "--host"), "configure": ("podman", "--dry-run"), "config": ("check",)}


def options() -> list[tuple[str, str, str]]:
    found = []
    for command in COMMANDS:
        for action in command_parser(command)._actions:
            if action.option_strings and action.nargs is None and command not in WAITING:
                name = action.option_strings[-1]
                value = NONSENSE[str(action.metavar or "") or None]
                found += [] if name in FREE else [(command, name, value)]
    return found


@pytest.mark.parametrize(("command", "option", "value"), options())
def test_every_option_rejects_an_invalid_value(
    cdigen: Run, host: Path, command: str, option: str, value: str
) -> None:
    root = () if option == "--root" else ("--root", host)
    done = cdigen(command, *root, *ARGUMENTS.get(command, ()), option, value)
    message = f"{done.out}{done.err}"
    assert option in message or value.removesuffix("/x") in message, (done.code, done.err)
    assert not Path(NOWHERE).exists()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("generate", "--nvml", NOWHERE), 2, ("--nvml", NOWHERE, "not a file")),
        (("doctor", "--nvml", NOWHERE), 2, ("--nvml", NOWHERE)),
        (("generate", "--driver-root", NOWHERE), 2, ("driver root", NOWHERE)),
        (("inspect", "--library-search-path", NOWHERE), 2, ("--library-search-path", NOWHERE)),
        (("generate", "--config-search-path", "/dev/nvidiactl"), 2, ("is not a folder",)),
        (("generate", "--output", f"{NOWHERE}/x"), 5, (NOWHERE, "does not exist", "mkdir -p")),
        (("list", "--spec-dir", NOWHERE), 2, ("--spec-dir", NOWHERE)),
        (("diff", "--spec-dir", NOWHERE), 2, ("--spec-dir", NOWHERE)),
        (("prune", "--spec-dir", NOWHERE), 2, ("--spec-dir", NOWHERE)),
        (("resolve", "--spec-dir", NOWHERE), 2, ("--spec-dir", NOWHERE)),
        (("resolve", "--run-dir", NOWHERE), 2, ("--run-dir", NOWHERE)),
        (("resolve", "--cdi-device", "gpu"), 2, ("'gpu'", "nvidia.com/gpu=0")),
        (("list", "--kind", "example.com/nothing"), 2, ("example.com/nothing", "etc/cdi")),
    ],
)
def test_a_missing_path_is_an_error_of_one_line_with_an_exit_code(
    cdigen: Run, host: Path, arguments: tuple[str, ...], code: int, words: tuple[str, ...]
) -> None:
    done = cdigen(*arguments, "--root", host)
    assert done.failed(code, *words), done.err
    assert (done.out, len(done.err.splitlines())) == ("", 1)


def test_a_missing_spec_directory_is_only_reported_without_the_option_write(cdigen: Run, host: Path) -> None:
    for command in ("generate", "inspect"):
        done = cdigen(command, "--root", host, "--spec-dir", NOWHERE)
        assert (done.code, len(done.err.splitlines())) == (0, 1)
        assert f"--spec-dir {NOWHERE} does not exist" in done.err


@pytest.mark.parametrize("option", ["--spec-dir", "--library-search-path"])
def test_a_file_instead_of_a_folder_is_a_usage_error(cdigen: Run, host: Path, option: str) -> None:
    file = host / "usr/file"
    file.touch()
    given = file if option == "--spec-dir" else "/usr/file"
    assert cdigen("diff", "--root", host, option, given).failed(2, option, "is not a folder")


def test_a_release_newer_than_all_known_releases_is_reported(cdigen: Run, host: Path) -> None:
    given = ("--target", "podman-99", "--target", "docker-25")
    for command in (("generate", "--root", host), ("inspect", "--root", host)):
        done = cdigen(*command, *given)
        assert done.code == 0
        assert "podman-99.0.0 is newer than podman-6.0.0, the newest release in cdigen's table" in done.err
        assert len(done.err.splitlines()) == 1
    assert "newer" not in cdigen("generate", "--root", host, "--target", "podman-6.0.3").err


@pytest.mark.parametrize(
    "arguments",
    [("--driver-root", "/x"), ("--mode", "wsl"), ("--nvml", "off"), ("--library-search-path", "/x")],
)
def test_options_of_discovery_are_rejected_with_an_inventory(cdigen: Run, arguments: tuple[str, str]) -> None:
    for command in ("generate", "inspect"):
        done = cdigen(command, "--inventory", EXAMPLE, *arguments)
        assert done.failed(2, arguments[0], "no effect with --inventory")


@pytest.mark.parametrize("arguments", [("--root", "/etc"), ("--config", "/dev/null")])
def test_validate_rejects_options_of_the_host_without_the_option_host(
    cdigen: Run, arguments: tuple[str, str]
) -> None:
    assert cdigen("validate", SPEC, *arguments).failed(2, arguments[0], "without --host")


def test_list_prints_the_available_kinds_if_a_kind_is_unknown(cdigen: Run, host: Path) -> None:
    cdigen("generate", "--root", host, "--write")
    done = cdigen("list", "--root", host, "--kind", "nvidia.com/gpuu", "--json")
    assert (done.code, done.json["error"]["hint"]) == (2, "available kinds: nvidia.com/gpu")


def test_validate_without_files_to_check_is_an_error(cdigen: Run, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert cdigen("validate", "").failed(2, "must not be empty")
    done = cdigen("validate", empty)
    assert done.failed(2, "nothing was checked", str(empty), "no .json or .yaml")
    assert cdigen("validate", empty, "--json").json["error"]["kind"] == "no-files"
    done = cdigen("validate", empty, SPEC)
    assert done.code == 0
    assert str(empty) in done.err


def test_json_and_yaml_cannot_be_printed_on_the_same_stream(cdigen: Run, host: Path, tmp_path: Path) -> None:
    assert cdigen("generate", "--root", host, "--json", "--format", "yaml").failed(2, "--json", "YAML")
    given = ("--json", "--format", "yaml", "--output", tmp_path / "x.yaml")
    assert cdigen("generate", "--root", host, *given).json[0]["result"] == "written"


def test_a_missing_output_folder_is_not_created(cdigen: Run, host: Path, tmp_path: Path) -> None:
    cdigen("generate", "--root", host, "--output", tmp_path / "new/x.json")
    assert list(tmp_path.glob("new*")) == []


def test_resolve_uses_the_folders_of_its_options(cdigen: Run, host: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    done = cdigen("resolve", "--root", host, "--run-dir", tmp_path / "run", "--spec-dir", tmp_path, "--json")
    assert json.loads(done.out)["outcome"] == "nothing"
