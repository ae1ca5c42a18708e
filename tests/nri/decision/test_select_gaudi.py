"""HABANA_VISIBLE_DEVICES against the names that specs of intel.com/gaudi really have, by `cdigen resolve`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from support.hosts import intel_tree

from cdigen.cli import generate, resolve
from cdigen.cli.parser import Parser

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("real_nodes")


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Return a host with Gaudis, whose nodes are not in the order of their addresses, and their spec."""
    gaudis = [intel_tree.gaudi(number, f"0000:{bus}:00.0") for number, bus in ((1, "19"), (0, "b3"))]
    intel_tree.lay(tmp_path, *gaudis)
    for folder in ("run", "var", "etc/cdigen"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    (tmp_path / "var/run").symlink_to("/run")
    (tmp_path / "etc/cdigen/config.yaml").write_text("nri: {allow: [{namespaces: [ml]}]}\n")
    parser = Parser(prog="cdigen generate", summary="generate", examples=generate.EXAMPLES)
    generate.add_options(parser)
    assert generate.run(parser.parse_args(["--root", str(tmp_path), "--write", "--quiet"])) == 0
    return tmp_path


@pytest.mark.parametrize(
    ("value", "names"),
    [("0", ["0"]), ("1,0", ["1", "0"]), ("all", ["all"]), ("none", []), ("2", None), ("0-1", None)],
)
def test_gaudis_are_found_by_the_numbers_of_their_nodes(
    host: Path, capsys: pytest.CaptureFixture[str], value: str, names: list[str] | None
) -> None:
    parser = Parser(prog="cdigen resolve", summary="resolve", examples=resolve.EXAMPLES)
    resolve.add_options(parser)
    asked = ["--namespace", "ml", "--env", f"HABANA_VISIBLE_DEVICES={value}", "--json"]
    code = resolve.run(parser.parse_args(["--root", str(host), *asked]))
    document = json.loads(capsys.readouterr().out)
    assert code == (1 if names is None else 0)
    assert document["devices"] == [f"intel.com/gaudi={name}" for name in names or ()]
    spec = json.loads((host / "run/cdi/intel.com-gaudi.json").read_text())
    nodes = {
        device["name"]: [node["path"] for node in device["containerEdits"]["deviceNodes"]]
        for device in spec["devices"]
    }
    assert "/dev/accel/accel0" in nodes["0"]
    assert "/dev/accel/accel1" in nodes["1"]
