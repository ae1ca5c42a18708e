"""`cdigen resolve --image-config`: what an image asks for and requires, on a host with CUDA 12.4."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from support.command.resolve import CONFIG, Resolve, document
from support.command.specs import configure
from support.json_output import validator

from cdigen.cli.image_config import MAX_IMAGE_CONFIG
from cdigen.model.errors import ConfigError, StoreError

ML = ("--namespace", "ml")
CUDA, VOLUMES = "com.nvidia.cuda.version", "com.nvidia.volumes.needed"
# As the image nvidia/cuda:8.0 has it, which nvidia-docker 1.0 ran.
OLD = {
    "Env": ["PATH=/usr/local/nvidia/bin:/usr/bin", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"],
    "Labels": {VOLUMES: "nvidia_driver", CUDA: "8.0.61"},
}


@pytest.fixture
def image(tmp_path: Path) -> Path:
    return tmp_path / "image.json"


def inspected(*env: str, **labels: str) -> dict[str, Any]:
    return {"Id": "sha256:1", "Config": {"Env": list(env), "Labels": labels}}


def of(asked: Resolve, image: Path, config: Any, *more: str) -> Any:
    image.write_text(json.dumps(config))
    found = document(asked("--json", *more, "--image-config", str(image)))
    validator("resolve").validate(found)
    return found


def test_an_image_of_nvidia_docker_1_gets_all_gpus_by_its_label(asked: Resolve, image: Path) -> None:
    found = of(asked, image, [{"Config": OLD}], *ML)
    assert (found["outcome"], found["devices"]) == ("inject", ["nvidia.com/gpu=all"])
    assert found["chosen"][0]["by"] == f"label {VOLUMES}"
    assert found["requirements"] == [
        {
            "by": CUDA,
            "text": "cuda>=8.0.61",
            "met": True,
            "has": "driver 550.163.01, cuda 12.4, arch 9.0",
        }
    ]


def test_its_own_variable_counts_over_the_label_and_that_of_the_container_over_both(
    asked: Resolve, image: Path
) -> None:
    own = inspected("NVIDIA_VISIBLE_DEVICES=1", **{VOLUMES: "nvidia_driver"})
    assert of(asked, image, own, *ML)["devices"] == ["nvidia.com/gpu=1"]
    labelled = {"Config": OLD}
    assert of(asked, image, labelled, *ML, "--env", "NVIDIA_VISIBLE_DEVICES=0")["devices"] == [
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
@pytest.mark.parametrize("given", [(), ML])
def test_what_the_driver_does_not_meet_is_refused_whoever_asks(
    asked: Resolve, image: Path, config: Any, by: str, given: tuple[str, ...]
) -> None:
    found = of(asked, image, config, *given)
    assert (found["outcome"], found["cause"], found["devices"]) == ("refuse", "requirement", [])
    assert by in found["reason"]
    assert "cuda 12.4" in found["reason"]
    assert asked(*given, "--image-config", str(image))[0] == 1


def test_an_image_that_asks_for_nothing_is_judged_all_the_same(asked: Resolve, image: Path) -> None:
    found = of(asked, image, inspected("NVIDIA_REQUIRE_CUDA=cuda>=12.0"))
    assert (found["outcome"], [row["met"] for row in found["requirements"]]) == ("nothing", [True])
    code, out = asked("--image-config", str(image))
    assert code == 0
    assert out.splitlines()[-1].split()[:3] == ["NVIDIA_REQUIRE_CUDA", "cuda>=12.0", "yes"]
    assert of(asked, image, inspected("A=B"))["requirements"] == []


def test_the_policy_may_only_warn_or_look_away(asked: Resolve, resolve_host: Path, image: Path) -> None:
    config = inspected("NVIDIA_VISIBLE_DEVICES=all", **{CUDA: "13.0"})
    for mode, causes in (("warn", ["requirement"]), ("off", [])):
        configure(resolve_host, CONFIG.replace("nri: {", f"nri: {{require: {mode}, "))
        found = of(asked, image, config, *ML)
        assert (found["outcome"], [note["cause"] for note in found["notes"]]) == ("inject", causes)
    configure(resolve_host, CONFIG)
    disabled = of(asked, image, config, *ML, "--env", "NVIDIA_DISABLE_REQUIRE=true")
    assert (disabled["outcome"], disabled["requirements"]) == ("inject", [])


def test_labels_of_a_hostile_image_reach_no_terminal(asked: Resolve, image: Path) -> None:
    evil = "8\x1b[2J\u202e\n"
    config = inspected(**{CUDA: evil, VOLUMES: f"nvidia_driver evil{evil}"})
    image.write_text(json.dumps(config))
    code, out = asked(*ML, "--image-config", str(image))
    assert (code, "\x1b" in out, "\u202e" in out, out.count("\n")) == (1, False, False, 1)
    found = of(asked, image, config, *ML)
    assert found["cause"] == "requirement_malformed"
    assert "\x1b" not in found["notes"][0]["text"]
    long = of(asked, image, inspected(**{CUDA: "9" * 100_000}), *ML)
    assert len(long["reason"]) < 200


def test_it_is_read_from_standard_input(asked: Resolve, monkeypatch: pytest.MonkeyPatch) -> None:
    text = io.TextIOWrapper(io.BytesIO(json.dumps([{"Config": OLD}]).encode()))
    monkeypatch.setattr("sys.stdin", text)
    assert asked(*ML, "--image-config", "-")[0] == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not JSON"),
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "is of 0 images"),
        (json.dumps([{"Config": OLD}] * 2), "is of 2 images"),
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
def test_what_is_no_image_is_said_in_a_line(asked: Resolve, image: Path, text: str, said: str) -> None:
    image.write_text(text)
    with pytest.raises(ConfigError) as failed:
        asked("--image-config", str(image))
    assert said in failed.value.message
    assert failed.value.message.isprintable()
    assert "image inspect" in failed.value.hint


def test_a_file_that_is_missing_or_huge_is_not_read(asked: Resolve, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be read"):
        asked("--image-config", str(tmp_path / "none"))
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(MAX_IMAGE_CONFIG + 1)
    with pytest.raises(StoreError, match="larger than"):
        asked("--image-config", str(tmp_path / "huge"))
    with pytest.raises(StoreError, match="larger than"):
        asked("--image-config", "/dev/zero")


def test_an_image_without_variables_and_labels_is_one(asked: Resolve, image: Path) -> None:
    assert of(asked, image, {"Config": {"Env": None, "Labels": None}})["outcome"] == "nothing"
