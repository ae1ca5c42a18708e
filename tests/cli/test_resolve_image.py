"""`cdigen resolve --image-config`: the requests and requirements of an image, on a host with CUDA 12.4."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from support.command.resolve import CONFIG, Resolve, document
from support.command.specs import configure
from support.json_output import validator

from cdigen.cli.specs.resolve import MAX_IMAGE_CONFIG
from cdigen.model.errors import ConfigError, StoreError

ML = ("--namespace", "ml")
CUDA, VOLUMES = "com.nvidia.cuda.version", "com.nvidia.volumes.needed"
# The configuration of the image nvidia/cuda:8.0, which nvidia-docker 1.0 ran.
OLD = {
    "Env": ["PATH=/usr/local/nvidia/bin:/usr/bin", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"],
    "Labels": {VOLUMES: "nvidia_driver", CUDA: "8.0.61"},
}


@pytest.fixture
def image(tmp_path: Path) -> Path:
    return tmp_path / "image.json"


def inspected(*env: str, **labels: str) -> dict[str, Any]:
    return {"Id": "sha256:1", "Config": {"Env": list(env), "Labels": labels}}


def of(run_resolve: Resolve, image: Path, config: Any, *more: str) -> Any:
    image.write_text(json.dumps(config))
    found = document(run_resolve("--json", *more, "--image-config", str(image)))
    validator("resolve").validate(found)
    return found


def test_an_image_of_nvidia_docker_1_gets_all_gpus_by_its_label(run_resolve: Resolve, image: Path) -> None:
    found = of(run_resolve, image, [{"Config": OLD}], *ML)
    assert (found["outcome"], found["devices"]) == ("inject", ["nvidia.com/gpu=all"])
    assert found["chosen"][0]["source"] == f"label {VOLUMES}"
    assert found["requirements"] == [
        {
            "source": CUDA,
            "text": "cuda>=8.0.61",
            "met": True,
            "host": "driver 550.163.01, cuda 12.4, arch 9.0",
        }
    ]


def test_the_container_variable_overrides_the_image_variable_which_overrides_the_label(
    run_resolve: Resolve, image: Path
) -> None:
    own = inspected("NVIDIA_VISIBLE_DEVICES=1", **{VOLUMES: "nvidia_driver"})
    assert of(run_resolve, image, own, *ML)["devices"] == ["nvidia.com/gpu=1"]
    labelled = {"Config": OLD}
    assert of(run_resolve, image, labelled, *ML, "--env", "NVIDIA_VISIBLE_DEVICES=0")["devices"] == [
        "nvidia.com/gpu=0"
    ]


@pytest.mark.parametrize(
    ("config", "by"),
    [
        (inspected("NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_REQUIRE_CUDA=cuda>=12.8"), "NVIDIA_REQUIRE_CUDA"),
        (inspected("CUDA_VERSION=13.0.1"), "CUDA_VERSION"),
        (inspected(**{CUDA: "13.0"}), CUDA),
        (inspected("NVIDIA_REQUIRE_CUDA=cuda>=11", **{CUDA: "99.1"}), CUDA),
    ],
)
@pytest.mark.parametrize("variable", [(), ML])
def test_an_unmet_requirement_from_any_source_is_a_refusal(
    run_resolve: Resolve, image: Path, config: Any, by: str, variable: tuple[str, ...]
) -> None:
    found = of(run_resolve, image, config, *variable)
    assert (found["outcome"], found["cause"], found["devices"]) == ("refuse", "requirement", [])
    assert by in found["reason"]
    assert "cuda 12.4" in found["reason"]
    assert run_resolve(*variable, "--image-config", str(image))[0] == 1


def test_the_requirements_of_an_image_without_a_request_are_checked(
    run_resolve: Resolve, image: Path
) -> None:
    found = of(run_resolve, image, inspected("NVIDIA_REQUIRE_CUDA=cuda>=12.0"))
    assert (found["outcome"], [row["met"] for row in found["requirements"]]) == ("nothing", [True])
    code, out = run_resolve("--image-config", str(image))
    assert code == 0
    assert out.splitlines()[-1].split()[:3] == ["NVIDIA_REQUIRE_CUDA", "cuda>=12.0", "yes"]
    assert of(run_resolve, image, inspected("A=B"))["requirements"] == []


def test_the_policy_can_reduce_unmet_requirements_to_warnings_or_ignore_them(
    run_resolve: Resolve, resolve_host: Path, image: Path
) -> None:
    config = inspected("NVIDIA_VISIBLE_DEVICES=all", **{CUDA: "13.0"})
    for mode, causes in (("warn", ["requirement"]), ("off", [])):
        configure(resolve_host, CONFIG.replace("nri: {", f"nri: {{image_requirements: {mode}, "))
        found = of(run_resolve, image, config, *ML)
        assert (found["outcome"], [note["cause"] for note in found["ignored_requests"]]) == ("inject", causes)
    configure(resolve_host, CONFIG)
    disabled = of(run_resolve, image, config, *ML, "--env", "NVIDIA_DISABLE_REQUIRE=true")
    assert (disabled["outcome"], disabled["requirements"]) == ("inject", [])


def test_control_characters_in_labels_are_not_printed(run_resolve: Resolve, image: Path) -> None:
    evil = "8\x1b[2J\u202e\n"
    config = inspected(**{CUDA: evil, VOLUMES: f"nvidia_driver evil{evil}"})
    image.write_text(json.dumps(config))
    code, out = run_resolve(*ML, "--image-config", str(image))
    assert (code, "\x1b" in out, "\u202e" in out, out.count("\n")) == (1, False, False, 1)
    found = of(run_resolve, image, config, *ML)
    assert found["cause"] == "requirement_malformed"
    assert "\x1b" not in found["ignored_requests"][0]["text"]
    long = of(run_resolve, image, inspected(**{CUDA: "9" * 100_000}), *ML)
    assert len(long["reason"]) < 200


def test_the_image_configuration_is_read_from_standard_input(
    run_resolve: Resolve, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = io.TextIOWrapper(io.BytesIO(json.dumps([{"Config": OLD}]).encode()))
    monkeypatch.setattr("sys.stdin", text)
    assert run_resolve(*ML, "--image-config", "-")[0] == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not JSON"),
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "must have one image (has 0)"),
        (json.dumps([{"Config": OLD}] * 2), "must have one image (has 2)"),
        ("7", ".Config is not an object"),
        ("[7]", "[0].Config is not an object"),
        ("{}", ".Config is not an object"),
        ('{"Config": null}', ".Config is not an object"),
        ('{"Config": {"Env": "A=B"}}', ".Config.Env is not a list of texts"),
        ('{"Config": {"Env": [1]}}', ".Config.Env is not a list of texts"),
        ('[{"Config": {"Labels": {"a": 1}}}]', "[0].Config.Labels is not an object of texts"),
        ('{"Config": {"Labels": []}}', ".Config.Labels is not an object of texts"),
    ],
)
def test_an_invalid_image_is_an_error_of_one_line(
    run_resolve: Resolve, image: Path, text: str, message: str
) -> None:
    image.write_text(text)
    with pytest.raises(ConfigError) as failed:
        run_resolve("--image-config", str(image))
    assert message in failed.value.message
    assert failed.value.message.isprintable()
    assert "image inspect" in failed.value.hint


def test_a_file_that_is_missing_or_huge_is_not_read(run_resolve: Resolve, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be read"):
        run_resolve("--image-config", str(tmp_path / "none"))
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(MAX_IMAGE_CONFIG + 1)
    with pytest.raises(StoreError, match="larger than"):
        run_resolve("--image-config", str(tmp_path / "huge"))
    with pytest.raises(StoreError, match="larger than"):
        run_resolve("--image-config", "/dev/zero")


def test_an_image_without_variables_and_labels_is_valid(run_resolve: Resolve, image: Path) -> None:
    assert of(run_resolve, image, {"Config": {"Env": None, "Labels": None}})["outcome"] == "nothing"
