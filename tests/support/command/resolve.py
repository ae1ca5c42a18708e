"""The command resolve on a host with one spec."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.paths import REPOSITORY

from cdigen.cli import resolve
from cdigen.cli.parser import Parser
from cdigen.frontend.rundir import INVENTORY_FILE

EXAMPLE = REPOSITORY / "examples/hosts/debian13-8xh100.json"
SPEC = {
    "cdiVersion": "0.5.0",
    "kind": "nvidia.com/gpu",
    "devices": [{"name": name, "containerEdits": {"env": ["A=B"]}} for name in ("0", "1", "all")],
}


CONFIG = "nri: {allow: [{namespaces: [ml]}]}\n"


Resolve = Callable[..., tuple[int, str]]


@pytest.fixture
def host(tmp_path: Path) -> Path:
    for name, text in {
        "etc/cdi/gpu.json": json.dumps(SPEC),
        "etc/cdigen/config.yaml": CONFIG,
        f"run/cdigen/{INVENTORY_FILE}": EXAMPLE.read_text(),
        "sys/module/nvidia/version": "550.163.01\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture
def asked(host: Path, capsys: pytest.CaptureFixture[str]) -> Resolve:
    def run(*arguments: str) -> tuple[int, str]:
        parser = Parser(prog="cdigen resolve", summary="resolve", examples=resolve.EXAMPLES)
        resolve.add_options(parser)
        code = resolve.run(parser.parse_args(["--root", str(host), *arguments]))
        return code, capsys.readouterr().out

    return run


def document(done: tuple[int, str]) -> Any:
    return json.loads(done[1])
