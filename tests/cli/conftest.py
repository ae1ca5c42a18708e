"""`cdigen resolve` on a host with one spec."""

import json
from pathlib import Path

import pytest
from support.command.resolve import CONFIG, EXAMPLE, SPEC, Resolve

from cdigen.cli.main import command_parser
from cdigen.cli.specs import resolve
from cdigen.service.rundir import INVENTORY_FILE


@pytest.fixture
def resolve_host(tmp_path: Path) -> Path:
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
def run_resolve(resolve_host: Path, capsys: pytest.CaptureFixture[str]) -> Resolve:
    """Return a function that runs `cdigen resolve`, and returns the exit code and the output."""

    def run(*arguments: str) -> tuple[int, str]:
        parser = command_parser("resolve")
        code = resolve.run(parser.parse_args(["--root", str(resolve_host), *arguments]))
        return code, capsys.readouterr().out

    return run
