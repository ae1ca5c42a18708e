"""The common values in the files of examples/kubernetes/gpushare are equal."""

import json
from typing import Any

import yaml
from support.paths import REPOSITORY

from cdigen import __version__
from cdigen.doctor.kubernetes.gpu_memory import RIGHTS

FOLDER = REPOSITORY / "examples/kubernetes/gpushare"


def documents(name: str) -> list[Any]:
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def test_the_scheduler_has_the_same_configuration_in_each_version() -> None:
    newest, older = documents("scheduler-v1.yaml")[0], documents("scheduler-v1beta1.yaml")[0]
    assert newest.pop("apiVersion") == "kubescheduler.config.k8s.io/v1"
    assert older.pop("apiVersion") == "kubescheduler.config.k8s.io/v1beta1"
    assert newest == older
    (extender,) = newest["extenders"]
    (policy,) = json.loads((FOLDER / "scheduler-policy.json").read_text())["extenders"]
    assert {key.lower(): value for key, value in policy.items()} == {
        key.lower(): value for key, value in extender.items() if key != "httpTimeout"
    }


def test_the_image_is_of_this_version_and_the_ports_are_equal() -> None:
    (images,) = (each["images"] for each in documents("kustomization.yaml"))
    found = {each["kind"]: each for each in documents("extender.yaml")}
    (container,) = found["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert images == [{"name": container["image"], "newTag": __version__}]
    (port,) = found["Service"]["spec"]["ports"]
    assert f"127.0.0.1:{port['nodePort']}/" in (FOLDER / "scheduler-v1.yaml").read_text()
    assert f"--listen=0.0.0.0:{port['port']}" in container["args"]


def test_the_files_of_the_kustomization_exist() -> None:
    (kustomization,) = documents("kustomization.yaml")
    assert all((FOLDER / name).exists() for name in kustomization["resources"])


def test_the_roles_grant_exactly_the_required_and_the_optional_rights() -> None:
    roles = [each for name in ("node.yaml", "extender.yaml") for each in documents(name) if "rules" in each]
    own = [each for each in roles if each["metadata"]["name"] in {"cdigen-node", "cdigen-ledgers"}]
    rules = [rule for role in own for rule in role["rules"]]
    granted = {(verb, resource) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}
    # Without the right to get pods, the reservation of a deleted pod stays until the extender removes it.
    assert granted == {*RIGHTS, ("get", "pods")}
