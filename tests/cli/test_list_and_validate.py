"""`cdigen list` and `cdigen validate` on spec files, good and bad."""

import json
from pathlib import Path

import pytest
from command import Run

GOOD = {
    "cdiVersion": "0.5.0",
    "kind": "example.com/gpu",
    "devices": [{"name": "0", "containerEdits": {"env": ["A=B"]}}],
}
LOADERS = {"0.5.2", "0.6.2", "0.7.2", "1.0.1", "1.1.0"}


def put(path: Path, document: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def test_list_names_devices_with_their_files(cdigen: Run, tmp_path: Path) -> None:
    file = put(tmp_path / "a/gpu.json", GOOD)
    row = {"device": "example.com/gpu=0", "kind": "example.com/gpu", "name": "0", "file": str(file)}
    done = cdigen("list", "--spec-dir", tmp_path / "a", "--json")
    assert done.json == [{**row, "usable": True, "reason": ""}]
    assert "example.com/gpu=0  usable" in cdigen("list", "--spec-dir", tmp_path / "a").out


def test_list_says_why_a_device_is_not_usable(cdigen: Run, tmp_path: Path) -> None:
    put(tmp_path / "low/gpu.json", GOOD)
    high = put(tmp_path / "high/gpu.json", GOOD)
    done = cdigen("list", "--spec-dir", tmp_path / "low", "--spec-dir", tmp_path / "high", "--json")
    usable = {row["file"]: (row["usable"], row["reason"]) for row in done.json}
    assert usable[str(high)] == (True, "")
    assert usable[str(tmp_path / "low/gpu.json")][0] is False
    assert str(high) in usable[str(tmp_path / "low/gpu.json")][1]


def test_list_reports_files_that_no_runtime_loads(cdigen: Run, tmp_path: Path) -> None:
    bad = put(tmp_path / "bad.json", "{")
    done = cdigen("list", "--spec-dir", tmp_path)
    assert done.code == 0
    assert str(bad) in done.err


def test_list_may_be_of_one_kind(cdigen: Run, tmp_path: Path) -> None:
    put(tmp_path / "gpu.json", GOOD)
    assert cdigen("list", "--spec-dir", tmp_path, "--kind", "example.com/nic", "--json").json == []


def test_list_of_nothing_says_where_it_looked(cdigen: Run, tmp_path: Path) -> None:
    done = cdigen("list", "--root", tmp_path)
    assert done.code == 0
    assert "etc/cdi" in done.err


def test_validate_accepts_what_generate_gives(cdigen: Run, host: Path) -> None:
    spec = cdigen("generate", "--root", host).out
    done = cdigen("validate", "-", "--host", "--root", host, "--json", stdin=spec.encode())
    assert done.code == 0
    assert done.json[0]["valid"] is True
    assert done.json[0]["findings"] == []
    assert set(done.json[0]["loaders"].values()) == {"accept"}


def test_validate_tells_what_each_loader_would_do(cdigen: Run, tmp_path: Path) -> None:
    file = put(
        tmp_path / "v.json", {**GOOD, "containerEdits": {"additionalGids": [44]}, "cdiVersion": "0.7.0"}
    )
    row = cdigen("validate", file, "--json").json[0]
    assert row["loaders"].keys() >= LOADERS
    assert (row["loaders"]["0.5.2"], row["loaders"]["0.7.2"]) == ("reject", "accept")
    assert row["valid"] is True


def test_validate_gathers_every_problem_with_its_path_and_rule(cdigen: Run, tmp_path: Path) -> None:
    file = put(
        tmp_path / "v.json", {**GOOD, "kind": "gpu", "devices": [{"name": "a b", "containerEdits": {}}]}
    )
    done = cdigen("validate", file, "--json")
    assert done.code == 1
    paths = {finding["path"] for finding in done.json[0]["findings"]}
    assert {"$.kind", "$.devices[0].name"} <= paths
    assert all(
        set(finding) == {"severity", "rule", "path", "message"} for finding in done.json[0]["findings"]
    )


def test_validate_gives_line_and_column_of_a_syntax_error(cdigen: Run, tmp_path: Path) -> None:
    file = put(tmp_path / "v.json", '{\n  "kind": oops\n}')
    done = cdigen("validate", file)
    assert done.code == 1
    assert "line 2, column 11" in done.out


def test_validate_reads_yaml_by_the_name_of_the_file(cdigen: Run, tmp_path: Path) -> None:
    text = "cdiVersion: 0.5.0\nkind: example.com/gpu\ndevices: [{name: gpu0, containerEdits: {env: [A=B]}}]\n"
    assert cdigen("validate", put(tmp_path / "v.yaml", text)).code == 0
    assert cdigen("validate", put(tmp_path / "v.json", text)).code == 1


def test_validate_host_finds_what_the_host_lacks(cdigen: Run, host: Path, tmp_path: Path) -> None:
    file = tmp_path / "spec.json"
    file.write_text(cdigen("generate", "--root", host).out)
    (host / "dev/nvidia0").unlink()
    done = cdigen("validate", file, "--host", "--root", host)
    assert done.code == 1
    assert "/dev/nvidia0" in done.out
    assert cdigen("validate", file).code == 0


def test_one_bad_file_among_good_ones_is_enough(cdigen: Run, tmp_path: Path) -> None:
    good, bad = put(tmp_path / "good.json", GOOD), put(tmp_path / "bad.json", "[]")
    done = cdigen("validate", good, bad)
    assert done.code == 1
    assert f"{good}: good" in done.out
    assert f"{bad}: not good" in done.out


def test_a_file_that_cannot_be_read_is_reported_and_the_others_are_judged(
    cdigen: Run, tmp_path: Path
) -> None:
    good = put(tmp_path / "good.json", GOOD)
    done = cdigen("validate", tmp_path / "none.json", good, "--json")
    assert done.code == 5
    assert [row["valid"] for row in done.json] == [False, True]
    assert set(done.json[0]["loaders"].values()) == {"unknown"}


def test_a_file_that_is_too_large_is_not_judged(cdigen: Run, tmp_path: Path) -> None:
    file = tmp_path / "large.json"
    with file.open("wb") as opened:
        opened.truncate((16 << 20) + 1)
    row = cdigen("validate", file, "--json").json[0]
    assert (row["valid"], row["findings"][0]["rule"]) == (False, "too-large")


@pytest.mark.parametrize(
    "content", [b"", b"\0", bytes(range(256)), b"[" * 100_000, b"\xff\xfe{}", b'{"a":1e999}']
)
def test_whatever_is_in_a_file_gives_a_verdict(cdigen: Run, tmp_path: Path, content: bytes) -> None:
    for name in ("x.json", "x.yaml"):
        (tmp_path / name).write_bytes(content)
        done = cdigen("validate", tmp_path / name, "--json")
        assert (done.code, done.json[0]["valid"]) == (1, False)
