"""`cdigen validate` on files, folders and pipes, and with --target and --loader."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support.command.fixtures import Run
from support.command.specs import GOOD, put

WITH_GIDS = {**GOOD, "containerEdits": {"additionalGids": [44]}, "cdiVersion": "0.7.0"}
OLDEST = {**GOOD, "cdiVersion": "0.3.0", "devices": [{**GOOD["devices"][0], "name": "a"}]}
LOADERS = {"0.5.2", "0.6.2", "0.7.2", "1.0.1", "1.1.0"}


def test_validate_accepts_the_specs_of_generate(cdigen: Run, host: Path) -> None:
    spec = cdigen("generate", "--root", host).out
    done = cdigen("validate", "-", "--host", "--root", host, "--json", stdin=spec.encode())
    assert done.code == 0
    assert done.json[0]["valid"] is True
    assert done.json[0]["findings"] == []
    assert set(done.json[0]["loaders"].values()) == {"accept"}


def test_validate_has_the_result_of_each_loader(cdigen: Run, tmp_path: Path) -> None:
    row = cdigen("validate", put(tmp_path / "v.json", WITH_GIDS), "--json").json[0]
    assert row["loaders"].keys() >= LOADERS
    assert (row["loaders"]["0.5.2"], row["loaders"]["0.7.2"]) == ("reject", "accept")
    assert row["valid"] is True


def test_validate_reports_every_problem_with_its_path_and_rule(cdigen: Run, tmp_path: Path) -> None:
    wrong = {"kind": "gpu", "devices": [{"name": "a b", "containerEdits": {}}]}
    file = put(tmp_path / "v.json", GOOD | wrong)
    done = cdigen("validate", file, "--json")
    assert done.code == 1
    paths = {finding["path"] for finding in done.json[0]["findings"]}
    assert {"$.kind", "$.devices[0].name"} <= paths
    keys = {"severity", "rule", "path", "message", "line", "column"}
    assert all(set(finding) == keys for finding in done.json[0]["findings"])


def test_validate_prints_line_and_column_of_a_syntax_error(cdigen: Run, tmp_path: Path) -> None:
    file = put(tmp_path / "v.json", '{\n  "kind": oops\n}')
    done = cdigen("validate", file)
    assert done.code == 1
    assert "line 2, column 11" in done.out


def test_validate_selects_the_parser_by_the_file_name(cdigen: Run, tmp_path: Path) -> None:
    text = "cdiVersion: 0.5.0\nkind: example.com/gpu\ndevices: [{name: gpu0, containerEdits: {env: [A=B]}}]\n"
    assert cdigen("validate", put(tmp_path / "v.yaml", text)).code == 0
    assert cdigen("validate", put(tmp_path / "v.json", text)).code == 1


def test_validate_host_reports_missing_paths(cdigen: Run, host: Path, tmp_path: Path) -> None:
    file = tmp_path / "spec.json"
    file.write_text(cdigen("generate", "--root", host).out)
    (host / "dev/nvidia0").unlink()
    done = cdigen("validate", file, "--host", "--root", host)
    assert done.code == 1
    assert "/dev/nvidia0" in done.out
    assert cdigen("validate", file).code == 0


def test_one_invalid_file_determines_the_exit_code(cdigen: Run, tmp_path: Path) -> None:
    good, bad = put(tmp_path / "good.json", GOOD), put(tmp_path / "bad.json", "[]")
    done = cdigen("validate", good, bad)
    assert done.code == 1
    assert f"{good}: valid" in done.out
    assert f"{bad}: invalid" in done.out


def test_a_file_that_cannot_be_read_is_reported_and_other_files_are_checked(
    cdigen: Run, tmp_path: Path
) -> None:
    good = put(tmp_path / "good.json", GOOD)
    done = cdigen("validate", tmp_path / "none.json", good, "--json")
    assert done.code == 5
    assert [row["valid"] for row in done.json] == [False, True]
    assert set(done.json[0]["loaders"].values()) == {"unknown"}


def test_a_file_that_is_too_large_is_not_checked(cdigen: Run, tmp_path: Path) -> None:
    file = tmp_path / "large.json"
    with file.open("wb") as opened:
        opened.truncate((16 << 20) + 1)
    row = cdigen("validate", file, "--json").json[0]
    assert (row["valid"], row["findings"][0]["rule"]) == (False, "too-large")


@pytest.mark.parametrize(
    "content", [b"", b"\0", bytes(range(256)), b"[" * 100_000, b"\xff\xfe{}", b'{"a":1e999}']
)
def test_a_file_with_any_other_content_is_invalid(cdigen: Run, tmp_path: Path, content: bytes) -> None:
    for name in ("x.json", "x.yaml"):
        (tmp_path / name).write_bytes(content)
        done = cdigen("validate", tmp_path / name, "--json")
        assert (done.code, done.json[0]["valid"]) == (1, False)


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [("x.json", '{\n  "kind": oops\n}', (2, 11)), ("x.yaml", "a: 1\n b: 2\n", (2, 3))],
)
def test_a_parse_error_has_line_and_column_as_keys(
    cdigen: Run, tmp_path: Path, name: str, text: str, place: tuple[int, int]
) -> None:
    (found,) = cdigen("validate", put(tmp_path / name, text), "--json").json[0]["findings"]
    assert (found["line"], found["column"]) == place


def test_the_text_output_has_line_and_column_of_a_finding(cdigen: Run, tmp_path: Path) -> None:
    file = put(tmp_path / "x.json", json.dumps({**GOOD, "kind": "x"}, indent=1))
    assert 'error: line 3, column 2: $.kind: "x" has no slash [kind-syntax]' in cdigen("validate", file).out


def test_in_a_folder_validate_checks_only_the_files_that_a_runtime_loads(cdigen: Run, tmp_path: Path) -> None:
    for name in ("b.json", "a.yaml", ".hidden.json", "c.yml", "d.JSON", "e.json.tmp", "below/f.json"):
        put(tmp_path / name, GOOD)
    (tmp_path / "folder.json").mkdir()
    done = cdigen("validate", tmp_path, "--json")
    assert [Path(row["file"]).name for row in done.json] == [".hidden.json", "a.yaml", "b.json"]
    assert done.code == 0


def test_validate_does_not_wait_for_a_fifo(cdigen: Run, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.json")
    for argument in (tmp_path, tmp_path / "x.json"):
        done = cdigen("validate", argument, "--json")
        assert (done.code, done.json[0]["valid"]) == (5, False)
        assert "a FIFO" in done.json[0]["findings"][0]["message"]
        assert set(done.json[0]["loaders"].values()) == {"unknown"}


def test_validate_does_not_read_a_device_node_or_a_socket(cdigen: Run, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s.json"))
        done = cdigen("validate", "/dev/zero", tmp_path / "s.json", "--json")
    assert done.code == 5
    assert ["not a regular file" in row["findings"][0]["message"] for row in done.json] == [True, True]


@pytest.mark.parametrize("name", ["-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"])
def test_standard_input_may_be_a_pipe(cdigen: Run, name: str) -> None:
    done = cdigen("validate", name, "--json", stdin=json.dumps(GOOD).encode())
    assert (done.code, done.json[0]["valid"]) == (0, True)


def test_a_slow_pipe_is_read_completely() -> None:
    script = 'printf "{"; sleep 0.3; printf "}"'
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE) as writer:
        assert writer.stdout
        done = subprocess.run(
            [sys.executable, "-m", "cdigen", "validate", "/dev/fd/0", "--json"],
            check=False,
            stdin=writer.stdout,
            capture_output=True,
            timeout=60,
        )
    assert {found["rule"] for found in json.loads(done.stdout)[0]["findings"]} == {"missing-field"}


def test_standard_input_cannot_be_named_twice(cdigen: Run) -> None:
    assert cdigen("validate", "-", "-").failed(2, "twice")


def test_too_many_bytes_on_standard_input_are_refused(cdigen: Run) -> None:
    done = cdigen("validate", "-", "--json", stdin=b" " * ((16 << 20) + 1))
    assert (done.code, done.json[0]["findings"][0]["rule"]) == (1, "too-large")


def test_a_dangling_link_has_exit_code_5(cdigen: Run, tmp_path: Path) -> None:
    (tmp_path / "x.json").symlink_to("nowhere")
    assert cdigen("validate", tmp_path, "--json").code == 5


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--loader", "0.7.2", "--loader", "main", "--loader", "next"], 0),
        (["--loader", "v0.8.0"], 0),
        (["--loader", "0.6.1"], 1),
        (["--loader", "0.7.2", "--loader", "0.5.4"], 1),
        (["--target", "podman-5.1"], 0),
        (["--target", "podman-4.9"], 1),
        (["--target", "crio-1.30", "--target", "containerd-1.7.24"], 0),
    ],
)
def test_the_exit_code_depends_on_the_requested_runtimes_and_libraries(
    cdigen: Run, tmp_path: Path, options: list[str], code: int
) -> None:
    done = cdigen("validate", put(tmp_path / "x.json", WITH_GIDS), "--json", *options)
    assert done.code == code
    (row,) = done.json
    assert row["valid"] is (code == 0)
    assert ("loader-refuses" in {found["rule"] for found in row["findings"]}) is (code == 1)
    requested = {name.removeprefix("v") for name in options[1::2] if options[0] == "--loader"}
    assert row["loaders"].keys() >= LOADERS | requested


def test_the_refusal_names_the_runtime_its_library_and_the_reason(cdigen: Run, tmp_path: Path) -> None:
    done = cdigen("validate", put(tmp_path / "x.json", WITH_GIDS), "--target", "podman-4.9")
    assert "podman-4.9.0 (CDI library 0.6.2) rejects the file: unknown field 'additionalGids'" in done.out


def test_a_crash_of_a_requested_runtime_is_reported(cdigen: Run, tmp_path: Path) -> None:
    file = put(tmp_path / "x.json", {**GOOD, "containerEdits": {"mounts": [None]}})
    row = cdigen("validate", file, "--target", "docker-28.1", "--json").json[0]
    assert "loader-crashes" in {found["rule"] for found in row["findings"]}


@pytest.mark.parametrize(
    ("option", "name", "library"),
    [
        ("--loader=0.4.0", "CDI library 0.4.0", "0.4.0"),
        ("--target=podman-4.1", "podman-4.1.0 (CDI library 0.4.0)", "0.4.0"),
        ("--target=podman-4.2.1", "podman-4.2.1 (CDI library 0.4.0)", "0.4.0"),
        ("--target=crio-1.24", "cri-o-1.24.0 (CDI library 0.3.2)", "0.3.2"),
        ("--target=crio-1.25", "cri-o-1.25.0 (CDI library 0.5.0)", "0.5.0"),
        ("--loader=9.9.9", "CDI library 9.9.9", "9.9.9"),
    ],
)
def test_the_result_for_an_untested_release_is_unknown_with_exit_code_1(
    cdigen: Run, tmp_path: Path, option: str, name: str, library: str
) -> None:
    file = put(tmp_path / "x.json", OLDEST)
    done = cdigen("validate", file, option)
    assert (done.code, done.out.splitlines()[0]) == (1, f"{file}: unknown")
    assert (
        f"{name}: unknown whether this release loads the file: CDI library {library} is not in cdigen's "
        "table of 0.5.2 to 1.1.0 (start a container with a device of the file)"
    ) in done.out
    done = cdigen("validate", file, option, "--json")
    (row,) = done.json
    assert (done.code, row["valid"], row["loaders"][library]) == (1, True, "unknown")
    assert [found["rule"] for found in row["findings"]] == ["loader-unknown"]
    # Another release that loads the file does not change the exit code.
    assert cdigen("validate", file, option, "--target", "podman-5.1").code == 1


@pytest.mark.parametrize(
    ("target", "doubt"),
    [
        ("docker-99", "docker-99.0.0 is newer than docker-29.7.2, the newest release in cdigen's table"),
        ("crio-1.99", "cri-o-1.99.0 is newer than cri-o-1.36.3, the newest release in cdigen's table"),
        ("containerd-1.8", "containerd-1.8.0 is newer than 1.7, the last series of containerd 1 in cdigen"),
        ("podman-4.10.1", "podman-4.10.1 is newer than 4.9, the last series of podman 4 in cdigen's table"),
    ],
)
def test_the_result_for_a_release_of_an_unknown_series_is_unknown_with_exit_code_1(
    cdigen: Run, tmp_path: Path, target: str, doubt: str
) -> None:
    file = put(tmp_path / "x.json", GOOD)
    done = cdigen("validate", file, "--target", target)
    assert (done.code, done.out.splitlines()[0], done.err) == (1, f"{file}: unknown", "")
    assert f"unknown whether this release loads the file: {doubt}" in done.out


@pytest.mark.parametrize("target", ["podman-4.2", "podman-4.1.1", "crio-1.24.6"])
def test_a_release_before_all_tested_releases_refuses_later_cdi_versions(
    cdigen: Run, tmp_path: Path, target: str
) -> None:
    file = put(tmp_path / "x.json", {**GOOD, "cdiVersion": "0.5.0"})
    done = cdigen("validate", file, "--target", target)
    assert (done.code, done.out.splitlines()[0]) == (1, f"{file}: invalid")
    assert 'rejects the file: unknown cdiVersion "0.5.0"' in done.out


def test_the_result_for_a_merge_key_is_unknown_for_every_release(cdigen: Run, tmp_path: Path) -> None:
    text = 'cdiVersion: "0.5.0"\nkind: example.com/thing\nx: &a {}\n<<: *a\ndevices: []\n'
    file = tmp_path / "x.yaml"
    file.write_text(text)
    row = cdigen("validate", file, "--target", "podman-5.1", "--json").json[0]
    assert row["loaders"]["0.7.2"] == "unknown"
    assert "loader-unknown" in {found["rule"] for found in row["findings"]}


@pytest.mark.parametrize("version", ["latest", "1.0", "", "1.0.x", "-1.0.0"])
def test_an_invalid_library_version_is_refused(cdigen: Run, tmp_path: Path, version: str) -> None:
    file = put(tmp_path / "x.json", GOOD)
    assert cdigen("validate", file, f"--loader={version}").failed(2, "not a version of the CDI library")


def test_the_runtimes_that_reject_a_file_are_printed_without_options(cdigen: Run, tmp_path: Path) -> None:
    done = cdigen("validate", put(tmp_path / "x.json", WITH_GIDS))
    assert done.code == 0
    assert "rejected by containerd before 1.7.16, " in done.out
    assert "podman 4.3.0 to before 5.1.0" in done.out
    row = cdigen("validate", tmp_path / "x.json", "--json").json[0]
    assert (row["runtimes"]["podman-4.3.0"], row["runtimes"]["podman-5.1.0"]) == ("reject", "accept")


def test_a_file_that_crashes_runtimes_is_reported(cdigen: Run, tmp_path: Path) -> None:
    assert (
        "  crashes every runtime: a null entry"
        in cdigen("validate", put(tmp_path / "x.json", {**GOOD, "containerEdits": {"mounts": [None]}})).out
    )


def test_a_file_name_that_no_runtime_loads_is_reported(cdigen: Run, tmp_path: Path) -> None:
    assert "must end in .json or .yaml" in cdigen("validate", put(tmp_path / "x.yml", GOOD)).out


def test_the_schema_is_applied_to_a_huge_spec_only_with_the_option_schema(
    cdigen: Run, tmp_path: Path
) -> None:
    nodes = [{"path": f"/dev/x{number}"} for number in range(2001)]
    devices = [{"name": "0", "containerEdits": {"deviceNodes": nodes}}]
    file = put(tmp_path / "v.json", {**GOOD, "devices": devices})
    row = cdigen("validate", file, "--json").json[0]
    assert row["valid"] is True
    assert [(found["severity"], found["rule"]) for found in row["findings"]] == [("info", "schema-skipped")]
    assert "--schema" in cdigen("validate", file).out
    assert cdigen("validate", file, "--schema", "--json").json[0]["findings"] == []
