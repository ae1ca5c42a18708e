"""All faults of an item of the configuration are reported at once, so that one correction is sufficient."""

from pathlib import Path

import pytest
from support.command.fixtures import Run
from support.command.specs import configure
from support.config_text import refusal

NAMED, CLASS = "a second profile is named 'ab'", "a second profile has the class 'cd'"


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("profiles:\n- {name: ab, class: cd}\n- {name: ab, class: cd}\n", (NAMED, CLASS)),
        ("profiles:\n- {name: ab, class: cd}\n- {name: ab, class: ef, mps: 1}\n", (NAMED, "mps must be")),
        ("profiles:\n- {name: ab, class: cd, mps: 1}\n- {name: ef, class: cd}\n", (CLASS, "mps must be")),
        (
            "nri: {allow: [{namespaces: [a], labels: {'x y': z, app: 'a b', app: c}}]}\n",
            ("must be names of labels, not 'x y'", "their values, or '*', not 'a b'", "has 'app' twice"),
        ),
        (
            "colour: blue\nspec_dirs: [/a]\nstate_dir: /a\n",
            ("unknown key 'colour'", "state_dir must not be a spec directory"),
        ),
        (
            "devices:\n  exclude:\n  - {index: x, address: 7, uuid: 'a b'}\n",
            ("index must be", "address must be", "uuid must be"),
        ),
        (
            "kubelet: {sharing: [{replicas: 0, devices: [], rename: x}]}\n",
            ("replicas must be", "devices must not be empty", "rename must be", "'resource' is missing"),
        ),
    ],
)
def test_all_faults_of_an_item_are_reported_at_once(text: str, faults: tuple[str, ...]) -> None:
    reported = refusal(text)
    assert [fault for fault in faults if fault not in reported] == []
    assert reported.count("c.yaml:") == len(faults)


@pytest.mark.parametrize(
    "text",
    [
        "spec_dirs: [/var/lib/cdigen]\nstate_dir: relative\n",
        "spec_dirs: [/run/cdigen]\ndaemon: {run_dir: relative}\n",
        "spec_dirs: [/run/cdigen]\ndaemon: off\n",
        "spec_dirs: [relative]\nstate_dir: /etc/cdi\n",
        "devices: {exclude: [{index: x}]}\n",
    ],
)
def test_the_default_of_an_invalid_key_causes_no_further_fault(text: str) -> None:
    assert refusal(text).count("c.yaml:") == 1


def test_config_check_reports_all_faults(cdigen: Run, tmp_path: Path) -> None:
    configure(tmp_path, "colour: blue\nspec_dirs: [/a]\nstate_dir: /a\n")
    done = cdigen("config", "check", "--root", tmp_path)
    assert done.code == 2
    assert len(done.out.splitlines()) == 2
