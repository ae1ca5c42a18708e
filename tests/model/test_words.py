"""Findings, profiles and errors: their texts for users, and their names for scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cdigen.model.errors import CdigenError, ConfigError, HostError, SpecError, StoreError
from cdigen.model.findings import Finding, errors
from cdigen.model.profile import DEFAULT, Profile

if TYPE_CHECKING:
    from cdigen.model.findings import Severity


def finding(severity: Severity = "warning", *, path: str = "", message: str = "m", hint: str = "") -> Finding:
    return Finding(severity=severity, rule="some-rule", path=path, message=message, hint=hint)


@pytest.mark.parametrize(
    ("made", "line"),
    [
        (finding(), "warning: m [some-rule]"),
        (finding(path="/dev/a"), "warning: /dev/a: m [some-rule]"),
        (finding(path="/dev/a", message="/dev/a is gone"), "warning: /dev/a is gone [some-rule]"),
        (finding(hint="do it"), "warning: m (do it) [some-rule]"),
    ],
)
def test_the_line_of_a_finding_contains_its_path_once(made: Finding, line: str) -> None:
    assert made.line() == line


def test_errors_returns_only_the_error_findings_in_order() -> None:
    given = [finding("error", message=text) for text in "ab"]
    assert errors([finding(), given[0], finding("info"), given[1]]) == tuple(given)


@pytest.mark.parametrize(
    ("error", "code", "kind"),
    [
        (ConfigError, 2, "usage"),
        (HostError, 3, "host-not-ready"),
        (SpecError, 4, "spec-invalid"),
        (StoreError, 5, "io"),
    ],
)
def test_each_error_has_its_exit_code_and_kind(error: type[CdigenError], code: int, kind: str) -> None:
    raised = error("what", hint="next")
    assert (raised.exit_code, raised.kind, raised.message, raised.hint) == (code, kind, "what", "next")
    assert error("what", kind="special").kind == "special"


def test_the_default_profile_includes_all_capabilities() -> None:
    assert DEFAULT.includes_capabilities(("compute",))
    assert DEFAULT.includes_capabilities(())


def test_a_profile_includes_files_of_its_capabilities_and_files_without_capabilities() -> None:
    profile = Profile(name="p", device_class="compute", capabilities=("compute", "utility"))
    assert profile.includes_capabilities(("video", "compute"))
    assert profile.includes_capabilities(())
    assert not profile.includes_capabilities(("graphics", "display"))
