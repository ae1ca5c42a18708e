"""The files for contributors: workflows run the repository's own scripts, and templates are complete."""

import os
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from support.paths import REPOSITORY

GITHUB = REPOSITORY / ".github"
WORKFLOWS = sorted(path.name for path in (GITHUB / "workflows").iterdir())
FORMS = sorted(path.name for path in (GITHUB / "ISSUE_TEMPLATE").iterdir() if path.name != "config.yml")
# Programs of a new Debian system, which a workflow runs to get the repository.
PROGRAMS = {"apt-get", "cd", "git"}


def workflow(name: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((GITHUB / "workflows" / name).read_text())
    return document


def steps(name: str) -> Iterator[dict[str, Any]]:
    """Yield each step of the workflow NAME; a step of a matrix, once for each value of the matrix."""
    for job in workflow(name)["jobs"].values():
        targets = job.get("strategy", {}).get("matrix", {}).get("target", [""])
        for target in targets:
            for step in job["steps"]:
                yield {**step, "run": step["run"].replace("${{ matrix.target }}", target)}


def commands(name: str) -> list[list[str]]:
    return [shlex.split(line) for step in steps(name) for line in step["run"].splitlines()]


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_runs_scripts_and_targets_that_exist(name: str) -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", makefile, flags=re.MULTILINE))
    unknown = []
    for program, *arguments in commands(name):
        if program == "make":
            unknown += [f"make {target}" for target in arguments if target not in targets]
        elif "/" in program:
            unknown += [] if os.access(REPOSITORY / program, os.X_OK) else [program]
        elif program not in PROGRAMS:
            unknown.append(program)
    assert unknown == []


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_only_reads_the_repository_and_runs_no_code_of_other_projects(name: str) -> None:
    assert workflow(name)["permissions"] == {"contents": "read"}
    assert not [job for job in workflow(name)["jobs"].values() if "permissions" in job or "uses" in job]
    assert not [step for step in steps(name) if "uses" in step]


def test_the_workflows_run_ci_for_each_change_and_the_long_tests_each_night() -> None:
    assert [".ci/run"] in commands("ci.yml")
    nightly = commands("nightly.yml")
    assert [[program, *rest] for program, *rest in nightly if program == "make"] == [
        ["make", "provision"],
        ["make", "nightly"],
        ["make", "provision"],
        ["make", "test-newest"],
    ]


@pytest.mark.parametrize("name", FORMS)
def test_an_issue_form_has_the_fields_that_github_requires(name: str) -> None:
    form = yaml.safe_load((GITHUB / "ISSUE_TEMPLATE" / name).read_text())
    assert form["name"]
    assert form["description"]
    fields = [element for element in form["body"] if element["type"] != "markdown"]
    assert {field["type"] for field in fields} <= {"input", "textarea", "dropdown", "checkboxes"}
    assert all(field["attributes"]["label"] for field in fields)
    assert len({field["id"] for field in fields}) == len(fields) > 0


def test_blank_issues_are_disabled_and_the_bug_form_refers_to_security_md() -> None:
    assert yaml.safe_load((GITHUB / "ISSUE_TEMPLATE/config.yml").read_text()) == {
        "blank_issues_enabled": False
    }
    assert (REPOSITORY / "SECURITY.md").exists()
    assert "SECURITY.md" in (GITHUB / "ISSUE_TEMPLATE/bug_report.yml").read_text()
    assert "SECURITY.md" in (REPOSITORY / "MAINTAINERS").read_text()


def test_the_pull_request_template_has_a_line_for_each_step_of_contributing() -> None:
    heading = "How a change is merged"
    part = (REPOSITORY / "CONTRIBUTING.md").read_text().partition(f"\n## {heading}\n")[2]
    template = (GITHUB / "pull_request_template.md").read_text()
    assert heading in template
    assert len(re.findall(r"^- \[ \] ", template, flags=re.MULTILINE)) == len(
        re.findall(r"^[0-9]\. ", part, flags=re.MULTILINE)
    )
