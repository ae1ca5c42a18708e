"""Read the output of ``podman image inspect`` and ``docker image inspect``."""

from __future__ import annotations

import json

from cdigen.cli.shared.options import read_input
from cdigen.host.root import shown
from cdigen.model.errors import ConfigError
from cdigen.nri.decision.image import ImageConfig

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# The limit in bytes. For an image with a thousand layers and their history, the output has about 400 kB.
MAX_IMAGE_CONFIG = 4 << 20
_HINT = "podman image inspect IMAGE"


def read_image_config(file: str) -> ImageConfig:
    """Return the configuration of the single image in the document FILE (``-`` is standard input).

    Raises ConfigError if the document is invalid or does not describe exactly one image. Raises StoreError if
    the document cannot be read, or if it is larger than MAX_IMAGE_CONFIG bytes.
    """
    data = read_input(file, limit=MAX_IMAGE_CONFIG)
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _wrong(f"{shown(file)} is not JSON: {shown(str(error))}") from None
    images = document if isinstance(document, list) else [document]
    if len(images) != 1:
        raise _wrong(f"{shown(file)}: must have one image (has {len(images)})")
    where = "[0]" if isinstance(document, list) else ""
    config = images[0].get("Config") if isinstance(images[0], dict) else None
    if not isinstance(config, dict):
        raise _wrong(f"{shown(file)}: {where}.Config is not an object")
    return ImageConfig(
        environment=_environment(config.get("Env"), f"{shown(file)}: {where}.Config.Env"),
        labels=_labels(config.get("Labels"), f"{shown(file)}: {where}.Config.Labels"),
    )


def _environment(value: Any, where: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise _wrong(f"{where} is not a list of texts")
    return tuple(value)


def _labels(value: Any, where: str) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise _wrong(f"{where} is not an object of texts")
    return value


def _wrong(message: str) -> ConfigError:
    return ConfigError(message, hint=_HINT, kind="image-config")
