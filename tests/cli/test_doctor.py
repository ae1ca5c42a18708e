"""cdigen doctor as a command: its streams, exit codes and words."""

from pathlib import Path

import pytest
from support.command.fixtures import Run


def test_a_host_that_is_well_ends_with_0_and_says_so(cdigen: Run, host: Path) -> None:
    cdigen("generate", "--write", "--root", host)
    done = cdigen("doctor", "--root", host)
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith("nothing is wrong\n")


def test_each_family_that_is_well_is_one_line_and_every_check_one_with_verbose(
    cdigen: Run, host: Path
) -> None:
    cdigen("generate", "--write", "--root", host)
    (host / "dev/nvidia1").unlink()
    rows = cdigen("doctor", "--json", "--root", host).json
    ill = {row["topic"] for row in rows if not row["ok"]}
    well = {row["topic"] for row in rows if row["checked"]} - ill
    assert ill
    lines = [line.split() for line in cdigen("doctor", "--root", host).out.splitlines()]
    assert {line[1] for line in lines if line[:1] == ["ok"]} == well
    assert {line[1] for line in lines if line[:1] == ["wrong"]} == {
        row["check"] for row in rows if row["severity"] == "error"
    }
    lines = [line.split() for line in cdigen("doctor", "--verbose", "--root", host).out.splitlines()]
    assert {line[1] for line in lines if line[:1] == ["ok"]} == {
        row["check"] for row in rows if row["ok"] and row["checked"]
    }


def test_what_could_not_be_looked_at_is_said_and_is_not_well(cdigen: Run, host: Path) -> None:
    (host / "usr/bin").mkdir(parents=True, exist_ok=True)
    (host / "usr/bin/podman").write_text("#!/bin/sh\n")
    (host / "usr/bin/podman").chmod(0o755)
    (host / "etc/systemd/system/multi-user.target.wants").mkdir(parents=True)
    rows = cdigen("doctor", "--json", "--root", host).json
    unsure = {row["check"] for row in rows if not row["checked"]}
    assert unsure
    for options in ((), ("--verbose",)):
        lines = [line.split() for line in cdigen("doctor", "--root", host, *options).out.splitlines()]
        assert {line[1] for line in lines if line[:1] == ["unknown"]} == unsure


def test_a_host_that_is_not_ends_with_1_and_the_cause_comes_first(cdigen: Run, host: Path) -> None:
    done = cdigen("doctor", "--root", host)
    assert done.code == 1
    assert done.out.startswith("wrong   spec-missing")
    assert f"remedy: cdigen generate --write --root {host}\n" in done.out


def test_json_is_one_document_with_the_keys_of_the_contract(cdigen: Run, host: Path) -> None:
    done = cdigen("doctor", "--json", "--root", host)
    assert (done.code, done.err) == (1, "")
    assert all({"check", "ok", "detail", "remedy"} <= row.keys() for row in done.json)
    assert [row["ok"] for row in done.json] == sorted(row["ok"] for row in done.json)


def test_quiet_leaves_out_what_is_well(cdigen: Run, host: Path) -> None:
    done = cdigen("doctor", "--quiet", "--root", host)
    assert "driver-loaded" not in done.out
    assert "spec-missing" in done.out


def test_a_host_without_a_driver_is_wrong_and_not_an_error_of_its_own(cdigen: Run, tmp_path: Path) -> None:
    done = cdigen("doctor", "--json", "--root", tmp_path)
    assert done.code == 1
    assert done.json[0]["check"] == "driver-loaded"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--user", "nobody-of-that-name"), ("--user", "no such user")),
        (("--for", "kubernetes"), ("--for", "invalid choice")),
        (("--mask",), ("--mask", "--bundle")),
        (("--inventory", "x.json"), ("--inventory",)),
        (("--config", "/no/such/file"), ("/no/such/file",)),
    ],
)
def test_wrong_usage_is_one_line(
    cdigen: Run, host: Path, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    done = cdigen("doctor", "--root", host, *arguments)
    assert done.code in {2, 5}
    assert done.failed(done.code, *words)


def test_the_machine_itself_can_be_asked(cdigen: Run) -> None:
    done = cdigen("doctor", "--json")
    assert done.code in {0, 1}
    assert "Traceback" not in done.err
    assert done.json
