"""Every `--json` output has a schema in schemas/output/, which refuses a key that is missing or misspelt.

That what commands print is as their schemas say, every test with the `cdigen` fixture checks (outputs.py).
"""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from support.command.fixtures import Run
from support.command.specs import configure
from support.command.statuses import FACTS, MISSED, board, put_kubelet, put_nri, saved, served
from support.json_output import OUTPUTS, SCHEMAS, validator
from support.nvml.busy_gpu import busy
from support.store import views
from support.values.cycle_reports import CHANGED, FAILED, STARTING
from support.values.page_samples import healthy
from support.values.unhealthy_gpus import FELL, example, ill, save

from cdigen.cli.main import COMMANDS
from cdigen.daemon.page.document import document as page_document
from cdigen.daemon.page.view import PageView
from cdigen.daemon.report import next_status
from cdigen.extender.status import document as extender_document
from cdigen.frontend.status import this_process
from cdigen.nri.decision.answer import Answer
from cdigen.nri.decision.audit import AuditResult
from cdigen.nri.events import ContainerDecided
from cdigen.nri.pods import ContainerName
from cdigen.value import replace

REPOSITORY = SCHEMAS.parent
# Which schemas a command's outputs have; all have that of an error as well.
BY_COMMAND = {name: (name,) for name in COMMANDS} | {
    "config": ("config-check",),
    "doctor": ("doctor", "doctor-migrate"),
    "generate": ("generate", "generate-write"),
    "inspect": ("inspect", "inspect-figures"),
    "run": ("daemon-status", "inspect", "page"),
    "health": ("health", "health-mark"),
    "nri": ("nri-status",),
    "kubelet": ("kubelet-status",),
    "extender": ("extender-status",),
}
REFUSED = ContainerDecided(
    name=ContainerName(namespace="ml", pod="p", container="c"),
    answer=Answer(outcome="refuse", devices=("x/y=0",), cause="c", reason="r"),
    duration_s=0.001,
)
FRONT_ENDS = {"nri", "kubelet", "devices"}
ALLOWING = "nri: {allow: [{namespaces: ['*'], kinds: ['nvidia.com/*']}]}\n"


def short(value: Any) -> Any:
    """Return VALUE with the first and the last only of each list in it: the others are alike."""
    if isinstance(value, dict):
        return {key: short(item) for key, item in value.items()}
    if isinstance(value, list):
        return [short(item) for item in (value if len(value) < 3 else (value[0], value[-1]))]
    return value


def edited(document: Any) -> Iterator[tuple[str, Any]]:
    """Yield DOCUMENT with one key taken away, misspelt, or too many, for each object in it."""

    def objects(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        if isinstance(value, dict):
            yield path
        if isinstance(value, dict | list):
            for key in value if isinstance(value, dict) else range(len(value)):
                yield from objects(value[key], (*path, key))

    def at(path: tuple[Any, ...]) -> tuple[Any, Any]:
        whole = found = copy.deepcopy(document)
        for key in path:
            found = found[key]
        return whole, found

    for path in objects(document):
        _, keys = at(path)
        for key in keys:
            whole, found = at(path)
            del found[key]
            yield f"{path} without {key}", whole
            whole, found = at(path)
            found[f"{key}s"] = found.pop(key)
            yield f"{path} with {key}s", whole
        whole, found = at(path)
        found["more"] = None
        yield f"{path} with more", whole


@pytest.fixture
def printed(cdigen: Run, host: Path, tmp_path: Path) -> dict[str, Any]:
    """Return one full output for each schema that has strict objects, as real commands print them."""
    root = ("--root", host)
    save(host, ill(example(), 0, FELL))
    old = views.driver(tmp_path / "views")
    views.old_view(old)
    saved(host, next_status(next_status(STARTING, CHANGED, {"files": "it is closed"}), FAILED, {"files": ""}))
    bad = tmp_path / "bad.json"
    bad.write_text('{"cdiVersion": "0.5.0", "kind": "a b/c", "devices": [], "more": 1}')
    config = tmp_path / "config.yaml"
    config.write_text("nonsense: 1\n")
    plugin = board()
    plugin.set_audit(AuditResult(missed=(MISSED,), foreign=(), is_complete=True))
    plugin.problems = CHANGED.findings
    plugin.add_container(REFUSED)
    put_nri(host, plugin)
    put_kubelet(host, served())
    configure(host, ALLOWING)
    status = cdigen("status", *root, "--json").json
    done = {
        "generate-write": cdigen("generate", *root, "--write", "--target", "podman-99", "--json"),
        "error": cdigen("generate", "--root", tmp_path / "none", "--json"),
        "list": cdigen("list", *root, "--json"),
        "health": cdigen("health", *root, "--json"),
        "health-mark": cdigen("health", *root, "--mark", "1", "--reason", "r", "--json"),
        "docker-args": cdigen("docker-args", *root, "--json"),
        "topology": cdigen("topology", *root, "--json"),
        "validate": cdigen("validate", bad, "--json"),
        "prune": cdigen("prune", "--root", old, "--dry-run", "--json"),
        "configure": cdigen("configure", "docker", *root, "--dry-run", "--json"),
        "config-check": cdigen("config", "check", "--config", config, "--json"),
        "doctor": cdigen("doctor", *root, "--json"),
        "withdraw": cdigen("withdraw", *root, "--dry-run", "--json"),
        "install-service": cdigen("install-service", "--destdir", tmp_path / "package", "--json"),
        "resolve": cdigen("resolve", *root, "--env", "NVIDIA_VISIBLE_DEVICES=all", "--json"),
    }
    (host / "dev/nvidia1").unlink()
    done["diff"] = cdigen("diff", *root, "--json")
    with busy() as library:
        done["inspect-figures"] = cdigen("inspect", *root, "--figures", "--nvml", library, "--json")
    (host / "usr/bin/nvidia-ctk").touch()
    script = tmp_path / "start.sh"
    script.write_text("docker run --gpus all image\n")
    uses = cdigen("doctor", "--json", "--migrate", script).json["uses"]
    done["doctor-migrate"] = cdigen("doctor", *root, "--json", "--migrate")
    found = {name: short(one.json) for name, one in done.items()}
    found["doctor-migrate"]["uses"] = uses  # which are of files that are given, the others of the host
    found["device-health"] = found["health"][0]
    found["cause"] = found["health"][0]["causes"][0]
    found["finding"] = found["generate-write"][0]["findings"][0]
    found["daemon-status"] = {key: value for key, value in status.items() if key not in FRONT_ENDS}
    return {
        **found,
        "page": short(page_document(paged())),
        "status": status,
        "nri-status": status["nri"],
        "kubelet-status": status["kubelet"],
        "extender-status": short(extender_document(this_process(), FACTS)),
    }


def test_a_schema_refuses_each_key_that_is_missing_misspelt_or_too_many(printed: dict[str, Any]) -> None:
    assert set(OUTPUTS) - {"generate", "inspect"} == set(printed)  # of which nothing is our own
    for name, document in printed.items():
        assert not empty(document), name
        judge = validator(name)
        judge.validate(document)
        taken = [what for what, wrong in edited(document) if judge.is_valid(wrong)]
        # What maps versions, sources or causes to something takes any of them.
        named = (
            "'loaders'",
            "'runtimes'",
            "'sources',)",
            "'refused')",
            "'refused',)",
            "'notes')",
            "'notes',)",
            "'labels')",
            # The status of a release before this one has none, and is read.
            "without owner",
        )
        assert [what for what in taken if not any(word in what for word in named)] == [], name


def paged() -> PageView:
    """Return a page of which no list is empty: a device is ill and in use, a runtime lacks one."""
    view = healthy()
    first, *_, last = view.devices
    ill = replace(first.device, accelerator=replace(first.device.accelerator, causes=(FELL,)))
    lacking = replace((view.runtimes or ())[0], problems=(("nvidia.com/gpu=0", "no such name"),))
    return replace(
        view, devices=(replace(first, device=ill), last), runtimes=(lacking,), peers=view.peers[-1:]
    )


def empty(document: Any) -> bool:
    """Whether nothing in DOCUMENT would tell that its schema takes anything."""
    return document in ({}, []) or (isinstance(document, dict) and document.get("chosen") == [])


def test_every_command_has_schemas_and_every_schema_a_command() -> None:
    named = {name for names in BY_COMMAND.values() for name in names} | {
        "error",
        "finding",
        "cause",
        "device-health",
    }
    assert named == set(OUTPUTS)
    assert set(BY_COMMAND) == set(COMMANDS)


@pytest.mark.parametrize("name", OUTPUTS)
def test_a_schema_is_one_and_says_what_it_is_of(name: str) -> None:
    schema = json.loads((SCHEMAS / f"output/{name}.schema.json").read_text())
    Draft202012Validator.check_schema(schema)
    assert schema["$id"] == f"https://cdigen.invalid/schemas/output/{name}.schema.json"
    assert schema["title"]
    assert list(open_objects(schema)) == []


def open_objects(schema: Any) -> Iterator[Any]:
    """Yield the objects in SCHEMA that take keys of any name, but maps and what others close."""
    if isinstance(schema, dict):
        closes = {"additionalProperties", "unevaluatedProperties", "maxProperties"} & schema.keys()
        if schema.get("type") == "object" and not closes:
            yield schema
        for key, value in schema.items():
            # What stands there is closed where it is used.
            yield from () if key == "$defs" else open_objects(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from open_objects(value)


def test_the_documentation_lists_every_schema() -> None:
    text = (REPOSITORY / "docs/json.md").read_text()
    assert {name for name in OUTPUTS if f"`schemas/output/{name}.schema.json`" not in text} == set()
