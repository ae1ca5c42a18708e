"""Every `--json` output has a schema in schemas/output/, which rejects missing and misspelt keys.

Every test with the `cdigen` fixture checks the output of commands with the schemas (outputs.py).
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
from support.values.unhealthy_gpus import FELL, example, save, with_causes

from cdigen.cli.main import COMMANDS
from cdigen.daemon.cycle.report import next_status
from cdigen.extender.status import document as extender_document
from cdigen.nri.decision.audit import AuditResult
from cdigen.nri.decision.result.injection import InjectionResult
from cdigen.nri.events import ContainerDecided
from cdigen.nri.pods import ContainerName
from cdigen.page.document import document as page_document
from cdigen.page.view import PageView
from cdigen.service.status import this_process
from cdigen.value import replace

REPOSITORY = SCHEMAS.parent
# The schemas of a command's outputs. Each command can also print an error.
BY_COMMAND = {name: (name,) for name in COMMANDS} | {
    "config": ("config-check",),
    "doctor": ("doctor", "doctor-migrate"),
    "generate": ("generate", "generate-write"),
    "inspect": ("inspect", "inspect-stats"),
    "run": ("daemon-status", "inspect", "page"),
    "health": ("health", "health-mark"),
    "nri": ("nri-status",),
    "kubelet": ("kubelet-status",),
    "extender": ("extender-status",),
}
REFUSED = ContainerDecided(
    name=ContainerName(namespace="ml", pod="p", container="c"),
    result=InjectionResult(outcome="refuse", devices=("x/y=0",), cause="c", reason="r"),
    duration_s=0.001,
)
FRONT_ENDS = {"nri", "kubelet", "devices"}
ALLOWING = "nri: {allow: [{namespaces: ['*'], kinds: ['nvidia.com/*']}]}\n"


def short(value: Any) -> Any:
    """Return VALUE with only the first and the last item of each list; the other items are similar."""
    if isinstance(value, dict):
        return {key: short(item) for key, item in value.items()}
    if isinstance(value, list):
        return [short(item) for item in (value if len(value) < 3 else (value[0], value[-1]))]
    return value


def edited(document: Any) -> Iterator[tuple[str, Any]]:
    """Yield copies of DOCUMENT; in each copy, one object has a missing, misspelt or additional key."""

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


def prepare(host: Path) -> None:
    """Add health, the status of each service and a configuration to HOST."""
    save(host, with_causes(example(), 0, FELL))
    saved(host, next_status(next_status(STARTING, CHANGED, {"files": "it is closed"}), FAILED, {"files": ""}))
    plugin = board()
    plugin.set_audit(AuditResult(uninjected=(MISSED,), foreign_annotations=(), is_complete=True))
    plugin.problems = CHANGED.findings
    plugin.add_container(REFUSED)
    put_nri(host, plugin)
    put_kubelet(host, served())
    configure(host, ALLOWING)


@pytest.fixture
def printed(cdigen: Run, host: Path, tmp_path: Path) -> dict[str, Any]:
    """Return one full output of a real command for each schema that has strict objects."""
    root = ("--root", host)
    prepare(host)
    old = views.driver(tmp_path / "views")
    views.old_view(old)
    bad = tmp_path / "bad.json"
    bad.write_text('{"cdiVersion": "0.5.0", "kind": "a b/c", "devices": [], "more": 1}')
    config = tmp_path / "config.yaml"
    config.write_text("nonsense: 1\n")
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
    done["create-nodes"] = cdigen("create-nodes", *root, "--json")
    (host / "dev/nvidia1").unlink()
    done["diff"] = cdigen("diff", *root, "--json")
    with busy() as library:
        done["inspect-stats"] = cdigen("inspect", *root, "--stats", "--nvml", library, "--json")
    (host / "usr/bin/nvidia-ctk").touch()
    script = tmp_path / "start.sh"
    script.write_text("docker run --gpus all image\n")
    requests = cdigen("doctor", "--json", "--migrate", script).json["legacy_requests"]
    done["doctor-migrate"] = cdigen("doctor", *root, "--json", "--migrate")
    found = {name: short(one.json) for name, one in done.items()}
    found["doctor-migrate"]["legacy_requests"] = requests  # of start.sh; other keys describe the host
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


def test_a_schema_refuses_missing_misspelt_and_additional_keys(printed: dict[str, Any]) -> None:
    assert set(OUTPUTS) - {"generate", "inspect"} == set(printed)  # both only refer to another schema
    for name, document in printed.items():
        assert not empty(document), name
        schema_validator = validator(name)
        schema_validator.validate(document)
        used = [what for what, wrong in edited(document) if schema_validator.is_valid(wrong)]
        # Maps of versions, sources or causes accept any key.
        named = (
            "'loaders'",
            "'runtimes'",
            "'sources',)",
            "'refused')",
            "'refused',)",
            "'ignored_requests')",
            "'ignored_requests',)",
            "'labels')",
        )
        assert [what for what in used if not any(word in what for word in named)] == [], name


def paged() -> PageView:
    """Return a page without empty lists: a device is unhealthy and in use, a runtime lacks a device."""
    view = healthy()
    first, *_, last = view.devices
    unhealthy = replace(first.device, accelerator=replace(first.device.accelerator, causes=(FELL,)))
    lacking = replace((view.runtimes or ())[0], problems=(("nvidia.com/gpu=0", "no such name"),))
    return replace(
        view,
        devices=(replace(first, device=unhealthy), last),
        runtimes=(lacking,),
        services=view.services[-1:],
    )


def empty(document: Any) -> bool:
    """Return whether DOCUMENT has too few keys for a test of its schema."""
    return document in ({}, []) or (isinstance(document, dict) and document.get("chosen") == [])


def test_every_command_has_schemas_and_every_schema_has_a_command() -> None:
    named = {name for names in BY_COMMAND.values() for name in names} | {
        "error",
        "finding",
        "cause",
        "device-health",
    }
    assert named == set(OUTPUTS)
    assert set(BY_COMMAND) == set(COMMANDS)


@pytest.mark.parametrize("name", OUTPUTS)
def test_every_schema_is_valid_and_has_a_title(name: str) -> None:
    schema = json.loads((SCHEMAS / f"output/{name}.schema.json").read_text())
    Draft202012Validator.check_schema(schema)
    assert schema["title"]
    assert list(open_objects(schema)) == []


def open_objects(schema: Any) -> Iterator[Any]:
    """Yield the objects in SCHEMA that accept any key, except maps and closed references."""
    if isinstance(schema, dict):
        closes = {"additionalProperties", "unevaluatedProperties", "maxProperties"} & schema.keys()
        if schema.get("type") == "object" and not closes:
            yield schema
        for key, value in schema.items():
            # The uses of a definition reject other keys.
            yield from () if key == "$defs" else open_objects(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from open_objects(value)


def test_the_documentation_lists_every_schema() -> None:
    text = (REPOSITORY / "docs/reference/json.md").read_text()
    assert {name for name in OUTPUTS if f"`schemas/output/{name}.schema.json`" not in text} == set()
