"""The tables of docs/reference/nri.md match the code."""

import re

import pytest
from support.paths import REPOSITORY

from cdigen.nri.decision.decide import IGNORED_REQUEST_CAUSES
from cdigen.nri.decision.request.refusal import REFUSAL_CAUSES
from cdigen.nri.decision.result.compat import abilities
from cdigen.runtimes.releases import NRI

TEXT = (REPOSITORY / "docs/reference/nri.md").read_text()


def table(head: str) -> str:
    """Return the rows of the table that starts with HEAD."""
    return TEXT.partition(f"\n{head}")[2].partition("\n\n")[0]


def named(head: str) -> set[str]:
    """Return the names in back quotes in the first column of the table that starts with HEAD."""
    firsts = [row.split("|")[1] for row in table(head).splitlines() if row.startswith("| ")]
    return {name for first in firsts for name in re.findall(r"`([^`]+)`", first)}


def test_all_causes_are_documented() -> None:
    assert named("| cause of a refusal") == set(REFUSAL_CAUSES)
    assert named("| cause of an ignored request") == set(IGNORED_REQUEST_CAUSES)


@pytest.mark.parametrize("runtime", [*NRI])
def test_the_documented_table_of_runtimes_matches_the_code(runtime: str) -> None:
    titles = {"containerd": "containerd", "cri-o": "CRI-O", "docker": "Docker"}
    rows = re.findall(rf"^\| {titles[runtime]} ([0-9.]+)(?: to ([0-9.]+))?(.*)$", TEXT, re.MULTILINE)
    assert rows
    for first, last, rest in rows:
        words = {"injects": "injected", "drops": "dropped", "refuses": "refused"}
        for version in filter(None, (first, last)):
            able = abilities(runtime, version)
            assert words[able.cdi] in rest, version
            if runtime != "docker":
                assert able.validates is rest.endswith("| yes |"), version
