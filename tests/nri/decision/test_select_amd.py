"""AMD_VISIBLE_DEVICES against the names that specs of amd.com/gpu really have, by `cdigen resolve`."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from support.hosts import amd_tree

from cdigen.cli import generate, resolve
from cdigen.cli.parser import Parser

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("real_nodes")
CONFIG = "nri: {allow: [{namespaces: [ml]}]}\n"
# The ids of the tree's GPUs as `amd-ctk gpu list` writes them.
IDS = [f"0x{number:X}" for number in amd_tree.UNIQUE_IDS]

Asked = Callable[[str], tuple[int, list[str], str]]


@pytest.fixture
def asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Asked]:
    """Return what makes a host of GPUs, with its specs, and asks there."""

    def host(*gpus: amd_tree.AmdGpu) -> Asked:
        amd_tree.write(tmp_path, gpus)
        for folder in ("run", "var", "etc/cdigen"):
            (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / "var/run").symlink_to("/run")
        (tmp_path / "etc/cdigen/config.yaml").write_text(CONFIG)
        parser = Parser(prog="cdigen generate", summary="generate", examples=generate.EXAMPLES)
        generate.add_options(parser)
        assert generate.run(parser.parse_args(["--root", str(tmp_path), "--write", "--quiet"])) == 0

        def ask(value: str) -> tuple[int, list[str], str]:
            parser = Parser(prog="cdigen resolve", summary="resolve", examples=resolve.EXAMPLES)
            resolve.add_options(parser)
            given = ["--namespace", "ml", "--env", f"AMD_VISIBLE_DEVICES={value}", "--json"]
            code = resolve.run(parser.parse_args(["--root", str(tmp_path), *given]))
            document = json.loads(capsys.readouterr().out)
            names = [device.removeprefix("amd.com/gpu=") for device in document["devices"]]
            return code, names, document["reason"]

        return ask

    return host


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("0", ["0"]),
        ("1,3", ["1", "3"]),
        ("0-2", ["0", "1", "2"]),
        ("0,2-3", ["0", "2", "3"]),
        ("all", ["all"]),
        (IDS[0], [IDS[0]]),
        (IDS[1].lower(), [IDS[1]]),
        (IDS[1].removeprefix("0x"), [IDS[1]]),
        (IDS[1].removeprefix("0x").lower(), [IDS[1]]),
        (IDS[1].replace("0x", "0X"), [IDS[1]]),
        # As sysfs has them.
        (f"{amd_tree.UNIQUE_IDS[0]:016x}", [IDS[0]]),
        (f"0x{amd_tree.UNIQUE_IDS[0]:016x}", [IDS[0]]),
        (f"{IDS[0]},{IDS[2]}", [IDS[0], IDS[2]]),
    ],
)
def test_whole_gpus_are_found_by_number_range_id_and_all(
    asked: Callable[..., Asked], value: str, names: list[str]
) -> None:
    assert asked(*amd_tree.mi210(4))(value)[:2] == (0, names)


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("15", ["15"]),
        ("6-9", ["6", "7", "8", "9"]),
        ("all", ["all"]),
        # The id that all partitions of a GPU share is the GPU.
        (IDS[1], [IDS[1]]),
    ],
)
def test_partitions_are_found_by_number_and_their_gpu_by_its_id(
    asked: Callable[..., Asked], value: str, names: list[str]
) -> None:
    assert asked(*amd_tree.mi300x(8, count=2))(value)[:2] == (0, names)


def test_an_id_of_digits_alone_is_no_index(asked: Callable[..., Asked]) -> None:
    first, second = amd_tree.mi210(2)
    ask = asked(first, replace(second, unique_id=0x1234567890123456))
    assert ask("1234567890123456")[:2] == (0, ["0x1234567890123456"])
    assert ask("1")[:2] == (0, ["1"])


@pytest.mark.parametrize("value", ["4", "2-4", "0x1234ABCD", "1234ABCD", "12345678", "GPU-1"])
def test_what_is_not_there_is_refused_and_what_there_is_is_named(
    asked: Callable[..., Asked], value: str
) -> None:
    code, names, reason = asked(*amd_tree.mi210(4))(value)
    assert (code, names) == (1, [])
    assert reason
