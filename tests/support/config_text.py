"""Configurations, read by the code and checked with the schema."""

import json
import re

from jsonschema import Draft202012Validator

from cdigen import config
from cdigen.config import Settings
from cdigen.model.errors import ConfigError
from cdigen.vendors.registry import VENDORS
from support.paths import REPOSITORY

SCHEMA = json.loads((REPOSITORY / "schemas/config.schema.json").read_text())
VALIDATOR = Draft202012Validator(SCHEMA)
KEYS = tuple(SCHEMA["properties"])
LISTS = ("vendors", "spec_dirs", "library_search_paths", "binary_search_paths", "config_search_paths")
PATHS = ("state_dir", "driver_root", "dev_root")


def read(text: str | bytes) -> Settings:
    data = text.encode() if isinstance(text, str) else text
    settings, found = config.read(data, file="c.yaml", vendors=tuple(VENDORS))
    if found:
        raise config.as_error(found)
    return settings


def refusal(text: str | bytes) -> str:
    """Return the reason why TEXT is refused, with the line; "" if it is accepted."""
    return re.sub(r"(c\.yaml:\d+):\d+: ", r"\1: ", exact_refusal(text))


def exact_refusal(text: str | bytes) -> str:
    """Return the reason why TEXT is refused, with line and column; "" if it is accepted."""
    try:
        read(text)
    except ConfigError as error:
        return f"{error.message} ({error.hint})"
    return ""
