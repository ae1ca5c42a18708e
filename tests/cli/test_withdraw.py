"""`cdigen withdraw` removes cdigen's specs, keeps foreign specs, and is refused while a daemon runs."""

import json
import os
import signal
from pathlib import Path

import pytest
from support.command.fixtures import Run
from support.command.specs import configure, written
from support.daemon.host import Host, daemon

KINDS = "profiles: [{name: gpu, class: gpu}, {name: other, class: other}]\n"
SPEC, OTHER = "nvidia.com-gpu.json", "nvidia.com-other.json"
HOOK = "/usr/libexec/cdigen/cdigen-hook"


@pytest.fixture
def two(cdigen: Run, host: Path) -> Path:
    """Return a host with specs of two kinds from cdigen."""
    configure(host, KINDS)
    assert written(cdigen, host) == [SPEC, OTHER]
    return host


def there(host: Path) -> set[str]:
    return set(os.listdir(host / "run/cdi"))


def test_withdraw_removes_cdigens_specs_and_a_second_run_changes_nothing(cdigen: Run, two: Path) -> None:
    done = cdigen("withdraw", "--root", two)
    assert (done.code, done.err) == (0, "")
    assert [line.split()[:2] for line in done.out.splitlines()] == [
        ["KIND", "RESULT"],
        ["nvidia.com/gpu", "withdrawn"],
        ["nvidia.com/other", "withdrawn"],
    ]
    assert there(two) == set()
    again = cdigen("withdraw", "--root", two)
    assert (again.code, again.out) == (0, "")
    assert again.err == "cdigen: no spec to withdraw\n"
    assert cdigen("withdraw", "--root", two, "--json").json == []


def test_json_has_the_removed_files(cdigen: Run, two: Path) -> None:
    rows = cdigen("withdraw", "--root", two, "--json").json
    assert [(row["result"], row["changed"]) for row in rows] == [("withdrawn", True)] * 2


def test_a_dry_run_prints_the_results_and_changes_nothing(cdigen: Run, two: Path) -> None:
    (two / "run/cdi" / OTHER).write_text("{}")
    before = Host(two).files()
    done = cdigen("withdraw", "--root", two, "--dry-run", "--json")
    assert done.code == 4
    assert [(row["kind"], row["result"], row["changed"]) for row in done.json] == [
        ("nvidia.com/gpu", "withdrawable", False),
        ("nvidia.com/other", "refused", False),
    ]
    assert Host(two).files() == before


@pytest.mark.parametrize(
    ("options", "left"),
    [
        (("--kind", "nvidia.com/other"), {SPEC}),
        (("--kind", "nvidia.com/none"), {SPEC, OTHER}),
        (("--vendor", "nvidia"), set()),
        (("--vendor", "amd"), {SPEC, OTHER}),
        (("--spec-dir", "/etc"), {SPEC, OTHER}),
    ],
)
def test_options_limit_the_withdrawn_specs(
    cdigen: Run, two: Path, options: tuple[str, ...], left: set[str]
) -> None:
    assert cdigen("withdraw", "--root", two, *options).code == 0
    assert there(two) == left


def test_an_unwritten_kind_is_reported_with_the_written_kinds(cdigen: Run, two: Path) -> None:
    done = cdigen("withdraw", "--root", two, "--kind", "nvidia.com/gpus")
    assert (done.code, "cdigen has written nvidia.com/gpu, nvidia.com/other" in done.err) == (0, True)


def test_an_invalid_kind_vendor_or_directory_is_wrong_usage(cdigen: Run, two: Path) -> None:
    assert cdigen("withdraw", "--root", two, "--kind", "gpu").failed(2, "--kind")
    assert cdigen("withdraw", "--root", two, "--vendor", "ati").failed(2, "--vendor")
    assert cdigen("withdraw", "--root", two, "--spec-dir", two / "nodir").failed(2, "nodir")
    assert there(two) == {SPEC, OTHER}


def test_edited_and_foreign_specs_stay_and_are_listed(cdigen: Run, two: Path) -> None:
    edited, foreign = two / "run/cdi" / SPEC, two / "etc/cdi/nvidia.yaml"
    document = json.loads(edited.read_bytes())
    edited.write_text(json.dumps(document))
    foreign.parent.mkdir(exist_ok=True)
    foreign.write_text(json.dumps(document))
    nic = {"cdiVersion": "0.5.0", "kind": "example.com/nic", "devices": [{"name": "0", "containerEdits": {}}]}
    (two / "etc/cdi/nic.json").write_text(json.dumps(nic))
    done = cdigen("withdraw", "--root", two)
    assert done.failed(4, SPEC, "was changed since cdigen wrote it and stays")
    assert f"{foreign} stays: cdigen did not write it" in done.err
    assert "nic" not in done.out + done.err
    assert (there(two), foreign.exists()) == ({SPEC}, True)
    rows = cdigen("withdraw", "--root", two, "--json").json
    assert [(row["result"], row["file"]) for row in rows] == [
        ("refused", str(edited)),
        ("foreign", str(foreign)),
    ]


def test_specs_that_cdigen_wrote_into_other_directories_are_also_withdrawn(
    cdigen: Run, two: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    assert cdigen("generate", "--write", "--root", two, "--spec-dir", elsewhere).code == 0
    assert cdigen("withdraw", "--root", two).code == 0
    assert (there(two), os.listdir(elsewhere)) == (set(), [])


def test_the_option_with_hook_removes_only_specs_that_run_the_hook(cdigen: Run, two: Path) -> None:
    module = two / "usr/libexec/cdigen/lib/cdigen/hook/main.py"
    module.parent.mkdir(parents=True)
    module.write_text("")
    for program in (two / HOOK.lstrip("/"), two / "usr/bin/python3"):
        program.parent.mkdir(exist_ok=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    configure(two, KINDS.replace("class: other", "class: other, hook: none"))
    assert written(cdigen, two)
    assert [HOOK in (two / "run/cdi" / name).read_text() for name in (SPEC, OTHER)] == [True, False]
    assert cdigen("withdraw", "--root", two, "--with-hook").code == 0
    assert there(two) == {OTHER}


def test_withdraw_uses_the_valid_keys_of_an_invalid_configuration(cdigen: Run, host: Path) -> None:
    configure(host, "state_dir: /srv/state\n")
    assert written(cdigen, host)
    configure(host, "state_dir: /srv/state\ncolour: blue\n")
    done = cdigen("withdraw", "--root", host)
    assert (done.code, "invalid configuration" in done.err, there(host)) == (0, True, set())


def test_with_a_damaged_state_file_all_specs_are_foreign(cdigen: Run, two: Path) -> None:
    (two / "var/lib/cdigen/state.json").write_text("{")
    done = cdigen("withdraw", "--root", two)
    assert (done.code, there(two)) == (0, {SPEC, OTHER})
    assert "so all present spec files are foreign" in done.err
    assert done.out.count("foreign") == 2


def test_withdraw_is_refused_while_the_daemon_runs(cdigen: Run, host: Path) -> None:
    here = Host(host)
    here.configure()
    with daemon(here) as running:
        running.sees(here.spec.exists)
        done = cdigen("withdraw", "--root", host)
        assert done.failed(
            5, "the cdigen daemon runs", f"process {running.process.pid}", "stop the daemon first"
        )
        failed = cdigen("withdraw", "--root", host, "--json")
        assert (failed.code, failed.json["error"]["kind"]) == (5, "daemon-running")
        assert cdigen("withdraw", "--root", host, "--dry-run", "--json").json[0]["result"] == "withdrawable"
        assert here.spec.exists()
        running.stop(signal.SIGTERM)
        assert cdigen("withdraw", "--root", host).code == 0
        assert not here.spec.exists()
    # A killed daemon leaves its lock, its status and its specs.
    with daemon(here) as running:
        running.sees(here.spec.exists)
        running.stop(signal.SIGKILL)
        assert cdigen("withdraw", "--root", host).code == 0
        assert not here.spec.exists()
