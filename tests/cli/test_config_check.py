"""`cdigen config check`, and what commands that only show how things are make of a wrong configuration."""

import json
from pathlib import Path

import pytest
from support.command.fixtures import Run
from support.command.specs import configure, written
from support.hosts.added_vendors import minimal, vendor

WRONG = "# ours\ncolour: blue\nstate_dir: 1\nspec_dirs: [/etc/cdi, relative]\n"
PLACES = [(2, 1), (3, 12), (4, 23)]


def test_every_fault_is_told_with_line_and_column_and_exit_2(cdigen: Run, tmp_path: Path) -> None:
    configure(tmp_path, WRONG)
    done = cdigen("config", "check", "--root", tmp_path)
    lines = done.out.splitlines()
    assert (done.code, done.err) == (2, "")
    assert [line.split(": ")[0] for line in lines] == [
        f"/etc/cdigen/config.yaml:{line}:{column}" for line, column in PLACES
    ]
    assert "colour" in lines[0]


def test_json_has_the_same_for_programs_and_no_error_object(cdigen: Run, tmp_path: Path) -> None:
    file = configure(tmp_path, WRONG)
    done = cdigen("config", "check", "--root", tmp_path, "--json")
    assert (done.code, done.err) == (2, "")
    assert (done.json["file"], done.json["valid"]) == (str(file), False)
    assert [(row["line"], row["column"]) for row in done.json["findings"]] == PLACES
    assert {row["rule"] for row in done.json["findings"]} == {"configuration"}


def test_more_faults_than_a_message_holds_are_all_told(cdigen: Run, tmp_path: Path) -> None:
    configure(tmp_path, "".join(f"key{number}: 1\n" for number in range(50)))
    assert len(cdigen("config", "check", "--root", tmp_path).out.splitlines()) == 50


@pytest.mark.parametrize("text", ["", "spec_dirs: [/etc/cdi]\n", None])
def test_what_is_right_or_not_there_is_exit_0(cdigen: Run, tmp_path: Path, text: str | None) -> None:
    if text is not None:
        configure(tmp_path, text)
    done = cdigen("config", "check", "--root", tmp_path)
    assert (done.code, done.out) == (0, "")
    assert ("nothing is wrong" if text is not None else "does not exist") in done.err
    quiet = cdigen("config", "check", "--root", tmp_path, "--quiet")
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")
    told = cdigen("config", "check", "--root", tmp_path, "--json").json
    assert (told["valid"], told["findings"]) == (True, [])


def test_a_file_is_checked_before_it_is_put_in_place(cdigen: Run, tmp_path: Path) -> None:
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
    assert (done.code, done.out.count("added and twin both have the kinds of example.com")) == (2, 1)


@pytest.mark.parametrize("words", [(), ("chek",), ("check", "more")])
def test_anything_but_check_is_wrong_usage(cdigen: Run, words: tuple[str, ...]) -> None:
    assert cdigen("config", *words).failed(2, "see 'cdigen config --help'")


def test_list_works_by_what_is_right_and_says_what_is_wrong(cdigen: Run, host: Path) -> None:
    assert written(cdigen, host)
    configure(host, WRONG)
    done = cdigen("list", "--root", host)
    assert (done.code, "nvidia.com/gpu=0" in done.out) == (0, True)
    assert "the configuration is wrong: /etc/cdigen/config.yaml:2:1: unknown key 'colour'" in done.err
    assert "and 2 more" in done.err
    assert "'cdigen config check'" in done.err
    configure(host, "spec_dirs: [/nowhere]\ncolour: blue\n")
    assert cdigen("list", "--root", host).out.splitlines() == ["DEVICE  STATE  FILE"]
    # What writes refuses as before.
    assert cdigen("generate", "--root", host).failed(2, "config.yaml:2:1: unknown key")


def test_one_that_cannot_be_read_is_said_unless_it_was_named(cdigen: Run, tmp_path: Path) -> None:
    (tmp_path / "etc/cdigen/config.yaml").mkdir(parents=True)
    done = cdigen("list", "--root", tmp_path)
    assert (done.code, "config.yaml cannot be read" in done.err) == (0, True)
    assert cdigen("list", "--root", tmp_path, "--config", tmp_path / "none").failed(5, "cannot be read")


def test_doctor_says_it_first_and_goes_through_the_rest(cdigen: Run, host: Path) -> None:
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


def test_status_without_a_daemon_says_that_it_cannot_start(cdigen: Run, tmp_path: Path) -> None:
    configure(tmp_path, WRONG)
    assert cdigen("status", "--root", tmp_path).failed(
        3, "no cdigen daemon", "it does not start while the configuration is wrong", "config.yaml:2:1"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("vendors:\n\t- nvidia\n", ":2:1: a tab"),
        ("nvml:\n  auto\n\t", ":3:1: a tab"),
        (
            "---\nmode: auto\n---\nmode: gpu\n",
            ":3:1: expected a single document in the stream, but found another",
        ),
    ],
)
def test_the_parser_s_words_tell_what_is_wrong(cdigen: Run, tmp_path: Path, text: str, said: str) -> None:
    configure(tmp_path, text)
    done = cdigen("config", "check", "--root", tmp_path)
    assert (done.code, said in done.out) == (2, True), done.out


OLD = "nri:\n  dropper: raw\n"
OLD_SAID = "nri: the key 'dropper' is now 'unsupported_cdi'"


def test_an_old_name_of_a_key_is_a_warning_of_every_command(cdigen: Run, host: Path) -> None:
    configure(host, OLD)
    said = f"/etc/cdigen/config.yaml:2:3: warning: {OLD_SAID}"
    checked = cdigen("config", "check", "--root", host)
    assert (checked.code, checked.out) == (0, f"{said}\n")
    told = cdigen("config", "check", "--root", host, "--json").json
    assert told["valid"] is True
    assert [(row["rule"], row["line"]) for row in told["findings"]] == [("configuration-old-key", 2)]
    for command in ("generate", "list"):
        done = cdigen(command, "--root", host)
        assert (done.code, done.err.count(f"warning: /etc/cdigen/config.yaml:2:3: {OLD_SAID}")) == (0, 1)
    (row,) = (
        row for row in cdigen("doctor", "--root", host, "--json").json if row["check"] == "configuration"
    )
    assert (row["ok"], row["severity"], OLD_SAID in row["detail"]) == (False, "warning", True)


def test_an_old_name_beside_a_fault_is_told_as_well(cdigen: Run, tmp_path: Path) -> None:
    configure(tmp_path, f"{OLD}{WRONG}")
    done = cdigen("config", "check", "--root", tmp_path)
    assert (done.code, len(done.out.splitlines())) == (2, 1 + len(PLACES))


def test_a_link_that_leads_nowhere_is_no_absent_configuration(cdigen: Run, tmp_path: Path) -> None:
    configure(tmp_path, "").unlink()
    (tmp_path / "etc/cdigen/config.yaml").symlink_to("/srv/config.yaml")
    assert cdigen("config", "check", "--root", tmp_path).failed(5, "config.yaml", "a link that leads nowhere")
    assert cdigen("status", "--root", tmp_path).failed(
        3, "it does not start while", "a link that leads nowhere"
    )


def test_what_is_not_done_of_nvidias_file_is_told_and_is_no_fault(cdigen: Run, tmp_path: Path) -> None:
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
        told = cdigen("config", "check", "--root", tmp_path, "--json")
        assert (told.code, told.json["valid"]) == (0, True)
        assert [row["severity"] for row in told.json["findings"]] == ["warning"]
