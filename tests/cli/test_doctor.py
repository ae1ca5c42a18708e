"""cdigen doctor as a command: its streams, exit codes and output."""

from pathlib import Path

import pytest
from support.command.fixtures import Run


def test_a_host_without_failures_has_exit_code_0(cdigen: Run, host: Path) -> None:
    cdigen("generate", "--write", "--root", host)
    done = cdigen("doctor", "--root", host)
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith("no errors or warnings\n")


def test_a_topic_without_failed_checks_is_one_line_and_verbose_prints_each_passed_check(
    cdigen: Run, host: Path
) -> None:
    cdigen("generate", "--write", "--root", host)
    (host / "dev/nvidia1").unlink()
    rows = cdigen("doctor", "--json", "--root", host).json
    failed = {row["topic"] for row in rows if not row["ok"]}
    passed = {row["topic"] for row in rows if row["checked"]} - failed
    assert failed
    lines = [line.split() for line in cdigen("doctor", "--root", host).out.splitlines()]
    assert {line[1] for line in lines if line[:1] == ["ok"]} == passed
    assert {line[1] for line in lines if line[:1] == ["error"]} == {
        row["check"] for row in rows if row["severity"] == "error"
    }
    lines = [line.split() for line in cdigen("doctor", "--verbose", "--root", host).out.splitlines()]
    assert {line[1] for line in lines if line[:1] == ["ok"]} == {
        row["check"] for row in rows if row["ok"] and row["checked"]
    }


def test_skipped_checks_have_their_own_lines(cdigen: Run, host: Path) -> None:
    (host / "usr/bin").mkdir(parents=True, exist_ok=True)
    (host / "usr/bin/podman").write_text("#!/bin/sh\n")
    (host / "usr/bin/podman").chmod(0o755)
    (host / "etc/systemd/system/multi-user.target.wants").mkdir(parents=True)
    rows = cdigen("doctor", "--json", "--root", host).json
    skipped = {row["check"] for row in rows if not row["checked"]}
    assert skipped
    for options in ((), ("--verbose",)):
        lines = [line.split() for line in cdigen("doctor", "--root", host, *options).out.splitlines()]
        assert {line[1] for line in lines if line[:1] == ["skipped"]} == skipped


def test_a_host_with_failures_has_exit_code_1_and_the_cause_first(cdigen: Run, host: Path) -> None:
    done = cdigen("doctor", "--root", host)
    assert done.code == 1
    assert done.out.startswith("error   spec-missing")
    assert f"remedy: cdigen generate --write --root {host}\n" in done.out


def test_json_is_one_document_with_the_documented_keys(cdigen: Run, host: Path) -> None:
    done = cdigen("doctor", "--json", "--root", host)
    assert (done.code, done.err) == (1, "")
    assert all({"check", "ok", "detail", "remedy"} <= row.keys() for row in done.json)
    assert [row["ok"] for row in done.json] == sorted(row["ok"] for row in done.json)


def test_quiet_hides_passed_checks(cdigen: Run, host: Path) -> None:
    done = cdigen("doctor", "--quiet", "--root", host)
    assert "driver-loaded" not in done.out
    assert "spec-missing" in done.out


def test_a_host_without_a_driver_is_a_failed_check_and_not_an_error(cdigen: Run, tmp_path: Path) -> None:
    done = cdigen("doctor", "--json", "--root", tmp_path)
    assert done.code == 1
    assert done.json[0]["check"] == "driver-loaded"


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("--user", "no-such-user"), ("--user", "no such user")),
        (("--for", "kubernetes"), ("--for", "invalid choice")),
        (("--inventory", "x.json"), ("--inventory",)),
        (("--config", "/no/such/file"), ("/no/such/file",)),
    ],
)
def test_wrong_usage_is_a_single_line(
    cdigen: Run, host: Path, arguments: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    done = cdigen("doctor", "--root", host, *arguments)
    assert done.code in {2, 5}
    assert done.failed(done.code, *parts)


def test_this_machine_can_be_checked(cdigen: Run) -> None:
    done = cdigen("doctor", "--json")
    assert done.code in {0, 1}
    assert "Traceback" not in done.err
    assert done.json
