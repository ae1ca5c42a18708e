"""`cdigen config check`, and commands that only print a state, with an invalid configuration."""

import json
from pathlib import Path

import pytest
from support.command.fixtures import Run
from support.command.specs import configure, written
from support.hosts.added_vendors import minimal, vendor

WRONG = "# ours\ncolour: blue\nstate_dir: 1\nspec_dirs: [/etc/cdi, relative]\n"
PLACES = [(2, 1), (3, 12), (4, 23)]


def test_every_fault_is_printed_with_line_and_column_and_exit_2(cdigen: Run, tmp_path: Path) -> None:
    configure(tmp_path, WRONG)
    done = cdigen("config", "check", "--root", tmp_path)
    lines = done.out.splitlines()
    assert (done.code, done.err) == (2, "")
    assert [line.split(": ")[0] for line in lines] == [
        f"/etc/cdigen/config.yaml:{line}:{column}" for line, column in PLACES
    ]
    assert "colour" in lines[0]


def test_json_has_every_fault_and_no_error_object(cdigen: Run, tmp_path: Path) -> None:
    file = configure(tmp_path, WRONG)
    done = cdigen("config", "check", "--root", tmp_path, "--json")
    assert (done.code, done.err) == (2, "")
    assert (done.json["file"], done.json["valid"]) == (str(file), False)
    assert [(row["line"], row["column"]) for row in done.json["findings"]] == PLACES
    assert {row["rule"] for row in done.json["findings"]} == {"configuration"}


def test_more_faults_than_fit_into_a_message_are_all_printed(cdigen: Run, tmp_path: Path) -> None:
    configure(tmp_path, "".join(f"key{number}: 1\n" for number in range(50)))
    assert len(cdigen("config", "check", "--root", tmp_path).out.splitlines()) == 50


@pytest.mark.parametrize("text", ["", "spec_dirs: [/etc/cdi]\n", None])
def test_a_valid_or_missing_file_has_exit_code_0(cdigen: Run, tmp_path: Path, text: str | None) -> None:
    if text is not None:
        configure(tmp_path, text)
    done = cdigen("config", "check", "--root", tmp_path)
    assert (done.code, done.out) == (0, "")
    assert ("valid" if text is not None else "does not exist") in done.err
    quiet = cdigen("config", "check", "--root", tmp_path, "--quiet")
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")
    report = cdigen("config", "check", "--root", tmp_path, "--json").json
    assert (report["valid"], report["findings"]) == (True, [])


def test_the_file_of_the_option_config_is_checked(cdigen: Run, tmp_path: Path) -> None:
    file = tmp_path / "new.yaml"
    file.write_text("daemon: {debounce_s: [\n")
    done = cdigen("config", "check", "--config", file)
    assert (done.code, done.out.startswith(f"{file}:2:1: ")) == (2, True)
    assert cdigen("config", "check", "--config", "-", stdin=b"mode: auto\n").code == 0
    assert cdigen("config", "check", "--config", tmp_path / "none").failed(5, "none cannot be read")


def test_two_vendors_with_the_same_kinds_are_a_fault_of_the_configuration(
    cdigen_process: Run, tmp_path: Path
) -> None:
    vendor(tmp_path, "added", minimal())
    with (tmp_path / "cdigen_added.py").open("a") as code:
        code.write("\n\nclass Twin(Vendor):\n    NAME = 'twin'\n\n\nTWIN = Twin()\n")
    with (tmp_path / "cdigen_added-1.0.dist-info/entry_points.txt").open("a") as entries:
        entries.write("twin = cdigen_added:TWIN\n")
    configure(tmp_path, "vendors: [added, twin]\n")
    done = cdigen_process("config", "check", "--root", tmp_path, PYTHONPATH=str(tmp_path))
    assert (done.code, done.out.count("added and twin both have the CDI vendor example.com")) == (2, 1)


@pytest.mark.parametrize("words", [(), ("chek",), ("check", "more")])
def test_arguments_other_than_check_are_wrong_usage(cdigen: Run, words: tuple[str, ...]) -> None:
    assert cdigen("config", *words).failed(2, "see 'cdigen config --help'")


def test_list_uses_the_valid_keys_and_reports_the_faults(cdigen: Run, host: Path) -> None:
    assert written(cdigen, host)
    configure(host, WRONG)
    done = cdigen("list", "--root", host)
    assert (done.code, "nvidia.com/gpu=0" in done.out) == (0, True)
    assert "invalid configuration: /etc/cdigen/config.yaml:2:1: unknown key 'colour'" in done.err
    assert "and 2 more" in done.err
    assert "'cdigen config check'" in done.err
    configure(host, "spec_dirs: [/nowhere]\ncolour: blue\n")
    assert cdigen("list", "--root", host).out.splitlines() == ["DEVICE  STATE  FILE"]
    # Commands that write reject the configuration.
    assert cdigen("generate", "--root", host).failed(2, "config.yaml:2:1: unknown key")


def test_list_only_reports_an_unreadable_default_file_but_fails_for_the_option_config(
    cdigen: Run, tmp_path: Path
) -> None:
    (tmp_path / "etc/cdigen/config.yaml").mkdir(parents=True)
    done = cdigen("list", "--root", tmp_path)
    assert (done.code, "config.yaml cannot be read" in done.err) == (0, True)
    assert cdigen("list", "--root", tmp_path, "--config", tmp_path / "none").failed(5, "cannot be read")


def test_doctor_reports_the_configuration_first_and_runs_all_other_checks(cdigen: Run, host: Path) -> None:
    assert written(cdigen, host)
    configure(host, WRONG)
    done = cdigen("doctor", "--root", host, "--json")
    first, *others = done.json
    assert done.code == 1
    assert (first["check"], first["ok"], first["severity"]) == ("configuration", False, "error")
    assert "/etc/cdigen/config.yaml:2:1: " in first["detail"]
    assert "spec-missing" in {row["check"] for row in others if row["ok"]}
    configure(host, "mode: auto\n")
    rows = {row["check"]: row["ok"] for row in json.loads(cdigen("doctor", "--root", host, "--json").out)}
    assert rows["configuration"] is True


def test_status_without_a_daemon_reports_that_the_daemon_cannot_start(cdigen: Run, tmp_path: Path) -> None:
    configure(tmp_path, WRONG)
    assert cdigen("status", "--root", tmp_path).failed(
        3, "no cdigen daemon", "the daemon cannot start: invalid configuration", "config.yaml:2:1"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("vendors:\n\t- nvidia\n", ":2:1: a tab"),
        ("nvml:\n  auto\n\t", ":3:1: a tab"),
        (
            "---\nmode: auto\n---\nmode: gpu\n",
            ":3:1: expected a single document in the stream, but found another",
        ),
    ],
)
def test_the_error_of_the_yaml_parser_is_printed(
    cdigen: Run, tmp_path: Path, text: str, message: str
) -> None:
    configure(tmp_path, text)
    done = cdigen("config", "check", "--root", tmp_path)
    assert (done.code, message in done.out) == (2, True), done.out


def test_a_dangling_link_is_not_a_missing_configuration(cdigen: Run, tmp_path: Path) -> None:
    configure(tmp_path, "").unlink()
    (tmp_path / "etc/cdigen/config.yaml").symlink_to("/srv/config.yaml")
    assert cdigen("config", "check", "--root", tmp_path).failed(5, "config.yaml", "a link without a target")
    assert cdigen("status", "--root", tmp_path).failed(
        3, "the daemon cannot start", "a link without a target"
    )


def test_unsupported_keys_in_the_file_of_nvidia_config_are_reported_and_accepted(
    cdigen: Run, tmp_path: Path
) -> None:
    configure(tmp_path, "kubelet: {nvidia_config: /etc/nvidia.yaml}\n")
    (tmp_path / "etc/nvidia.yaml").write_text("version: v1\nflags: {failOnInitError: true, strange: 1}\n")
    done = cdigen("config", "check", "--root", tmp_path)
    assert (done.code, done.err) == (0, "")
    assert [line.split(" ")[0:2] for line in done.out.splitlines()] == [
        ["/etc/nvidia.yaml:2:9:", "info:"],
        ["/etc/nvidia.yaml:2:32:", "warning:"],
    ]
    for text in ("version: v2", "a: ["):
        (tmp_path / "etc/nvidia.yaml").write_text(text)
        report = cdigen("config", "check", "--root", tmp_path, "--json")
        assert (report.code, report.json["valid"]) == (0, True)
        assert [row["severity"] for row in report.json["findings"]] == ["warning"]
