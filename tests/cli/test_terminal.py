"""Tables and help fit the width of the terminal, and texts for copying are complete."""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.command.fixtures import Run
from support.command.in_process import needs_process
from support.command.statuses import saved
from support.command.terminal import on_terminal
from support.hosts.nvidia_machines import dgx_h100
from support.store import views
from support.store.views import old_view
from support.values.cycle_reports import CHANGED, FAILED, STARTING

from cdigen.cli.main import COMMANDS
from cdigen.cli.shared.terminal import wrap_table
from cdigen.daemon.cycle.report import next_status

WIDE, WIDTHS = 1000, (80, 120)
# Texts for copying: names of devices, identifiers, paths and commands.
COPIED = re.compile(r"(?:[\w.-]+/[\w.-]+=[\w:.-]+)|(?:GPU-[0-9a-f-]{36})|(?:/[\w.-]+)+")


def long_lines(lines: Iterable[str], columns: int) -> list[str]:
    """Return the LINES that are longer than COLUMNS although they contain a space."""
    return [line for line in lines if len(line) > columns and " " in line.strip()]


@pytest.fixture
def written(cdigen: Run, tmp_path: Path, real_nodes: None) -> Path:  # noqa: ARG001
    """Return the root of a DGX with its specs, an unused view, and the status of a daemon."""
    root = tmp_path / "host"
    dgx_h100(root)
    (root / "run").mkdir(exist_ok=True)
    old_view(views.driver(tmp_path / "views"))
    saved(root, next_status(next_status(STARTING, CHANGED, {"files": ""}), FAILED, {"files": ""}))
    assert cdigen("generate", "--root", root, "--write").code == 0
    (root / "dev/nvidia7").unlink()
    return root


TABLES = {
    "list": ("list",),
    "inspect": ("inspect",),
    "diff": ("diff",),
    "doctor": ("doctor",),
    "doctor-verbose": ("doctor", "--verbose"),
    "status": ("status",),
    "prune": ("prune", "--dry-run"),
    "withdraw": ("withdraw", "--dry-run"),
    "resolve": ("resolve", "--env", "NVIDIA_VISIBLE_DEVICES=all"),
}


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("command", TABLES)
def test_a_narrow_table_fits_and_has_the_content_of_a_wide_table(
    written: Path, command: str, columns: int
) -> None:
    root = written.with_name("views") if command == "prune" else written
    wide, text = (on_terminal(width, *TABLES[command], "--root", root) for width in (WIDE, columns))
    # Each remedy, each entry of diff and each message on standard error is one line, for copying.
    whole = ("+ ", "- ", "cdigen: ")
    lines = (line for line in text.splitlines() if "remedy: " not in line and not line.startswith(whole))
    assert long_lines(lines, columns) == []
    assert set(COPIED.findall(text)) == set(COPIED.findall(wide))
    assert sorted(text.split()) == sorted(wide.split()) or command == "list"


def test_piped_output_is_not_wrapped(cdigen: Run, written: Path) -> None:
    listed = cdigen("list", "--root", written, COLUMNS="40").out.splitlines()
    assert all(len(line.split()) == 3 for line in listed)
    assert cdigen("doctor", "--root", written, COLUMNS="40").out == cdigen("doctor", "--root", written).out


def test_the_variable_columns_has_priority_over_the_terminal(written: Path) -> None:
    narrow, from_environment = (
        on_terminal(80, "list", "--root", written),
        on_terminal(300, "list", "--root", written, COLUMNS="80"),
    )
    assert narrow == from_environment
    assert on_terminal(0, "list", "--root", written) == narrow


def test_on_a_narrow_terminal_a_list_has_each_file_above_its_devices(written: Path) -> None:
    lines = on_terminal(80, "list", "--root", written).splitlines()
    file = str(written / "var/run/cdi/nvidia.com-gpu.json")
    assert lines.count(file) == 1
    assert lines[lines.index(file) + 1].split() == ["nvidia.com/gpu=0", "usable"]


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_a_help_fits_the_terminal_and_has_at_most_100_columns(command: str, columns: int) -> None:
    text = on_terminal(columns, *filter(None, ("help", command)))
    assert text.startswith("usage: cdigen")
    assert max(map(len, text.splitlines())) <= min(columns, 100)


def test_a_help_that_is_piped_has_at_most_80_columns(cdigen: Run, cdigen_process: Run) -> None:
    for command in COMMANDS:
        run = cdigen_process if needs_process((command,)) else cdigen
        assert max(map(len, run(command, "--help").out.splitlines())) <= 80, command


# The layout of tables.

ROWS = (
    ("NAME", "WHY", "FILE"),
    ("nvidia.com/gpu=0", "it is not there any more", "/run/cdi/nvidia.com-gpu.json"),
)


def test_a_table_that_fits_is_not_wrapped() -> None:
    assert wrap_table(ROWS, 80) == wrap_table(ROWS, None)
    assert [len(lines) for lines in wrap_table(ROWS, 80)] == [1, 1]


def test_cells_are_wrapped_between_words_if_a_table_does_not_fit() -> None:
    assert wrap_table(ROWS, 60)[1] == (
        "nvidia.com/gpu=0  it is not     /run/cdi/nvidia.com-gpu.json",
        "                  there any",
        "                  more",
    )


def test_the_last_columns_are_on_a_separate_line_if_wrapped_cells_do_not_fit() -> None:
    assert wrap_table(ROWS, 45)[1] == (
        "nvidia.com/gpu=0  it is not there any more",
        "    /run/cdi/nvidia.com-gpu.json",
    )


@given(
    st.lists(st.tuples(*[st.text("ab /.", max_size=30)] * 3), min_size=1, max_size=6),
    st.integers(1, 100),
    st.sampled_from([None, 0, 2]),
)
def test_no_word_is_lost_or_broken(rows: list[tuple[str, str, str]], columns: int, above: int | None) -> None:
    laid = wrap_table([("A", "B", "C"), *rows], columns, above=above)
    words = {word for line in laid for text in line for word in text.split()}
    assert words == {"A", "B", "C", *(word for row in rows for cell in row for word in cell.split())}
    assert len(laid) == len(rows) + 1
