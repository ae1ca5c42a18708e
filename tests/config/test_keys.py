"""The settings have a field for each key of the tables, and files generated from the tables are current."""

import re

import configuration
import pytest
import yaml
from jsonschema import Draft202012Validator
from support.config_text import KEYS as NAMES
from support.config_text import SCHEMA, read, refusal
from support.paths import REPOSITORY

from cdigen.config import (
    AllowRule,
    DaemonConfig,
    DevicesConfig,
    GpuKind,
    HealthConfig,
    KubeletConfig,
    NriConfig,
    PageConfig,
    ResourceRow,
    Settings,
    SharedMemory,
    SharingRow,
)
from cdigen.config.keys import (
    DAEMON_KEYS,
    DEVICES_KEYS,
    EXCLUDE_KEYS,
    HEALTH_KEYS,
    KEYS,
    PAGE_KEYS,
    PROFILE_KEYS,
)
from cdigen.config.service_keys import (
    ALLOW_KEYS,
    GPU_KIND_KEYS,
    KUBELET_KEYS,
    NRI_KEYS,
    RESOURCE_KEYS,
    SHARED_MEMORY_KEYS,
    SHARING_KEYS,
)
from cdigen.config.types import Key
from cdigen.model.profile import Profile
from cdigen.vendors.context import DeviceFilter
from cdigen.vendors.registry import VENDORS

TABLES = [
    (KEYS, Settings),
    (PROFILE_KEYS, Profile),
    (DEVICES_KEYS, DevicesConfig),
    (EXCLUDE_KEYS, DeviceFilter),
    (DAEMON_KEYS, DaemonConfig),
    (HEALTH_KEYS, HealthConfig),
    (PAGE_KEYS, PageConfig),
    (NRI_KEYS, NriConfig),
    (ALLOW_KEYS, AllowRule),
    (GPU_KIND_KEYS, GpuKind),
    (KUBELET_KEYS, KubeletConfig),
    (RESOURCE_KEYS, ResourceRow),
    (SHARED_MEMORY_KEYS, SharedMemory),
    (SHARING_KEYS, SharingRow),
]
# Fields without a key of the same name. The key nri.restrict_driver_files sets this field.
DERIVED: dict[type, tuple[str, ...]] = {Profile: ("has_capability_kinds",)}


@pytest.mark.parametrize(("keys", "cls"), TABLES)
def test_every_field_has_a_key_and_every_key_has_a_field(keys: tuple[Key, ...], cls: type) -> None:
    own = [name for name in cls.__annotations__ if name not in DERIVED.get(cls, ())]
    assert [key.field or key.name for key in keys] == own
    required = {key.field or key.name for key in keys if key.is_required}
    assert required == set(cls.__annotations__) - vars(cls)["_defaults"].keys()
    names = [key.name for key in keys]
    assert len(names) == len(set(names))


def test_schema_and_example_are_generated_from_the_present_table() -> None:
    assert (REPOSITORY / "schemas/config.schema.json").read_text() == configuration.schema(), (
        "run 'make generated'"
    )
    assert (REPOSITORY / "etc/config.yaml").read_text() == configuration.example(), "run 'make generated'"


def test_the_reference_has_every_key_in_the_table_of_its_section() -> None:
    page = (REPOSITORY / "docs/reference/configuration.md").read_text()
    listed = [keys for _, _, keys, _ in configuration.TABLES.values()]
    assert [keys for keys, _ in TABLES if not any(keys is known for known in listed)] == []
    for _, head, keys, _ in configuration.TABLES.values():
        table = page.partition(f"\n| {head} |")[2].partition("\n\n")[0]
        assert re.findall(r"^\| `([a-z0-9_]+)` \|", table, re.MULTILINE) == [key.name for key in keys]


def test_the_schema_is_valid_and_has_every_vendor() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$defs"]["vendor"]["enum"] == list(VENDORS)
    assert all(rule["description"] for rule in SCHEMA["properties"].values())


def test_the_shipped_file_has_every_key_and_its_lines_are_valid_without_the_comment_sign() -> None:
    shipped = (REPOSITORY / "etc/config.yaml").read_text()
    assert read(shipped) == Settings()
    uncommented = re.sub(r"^#(?=\w+:|  )", "", shipped, flags=re.MULTILINE)
    document = yaml.safe_load(uncommented)
    assert tuple(document) == NAMES
    assert list(document["daemon"]) == [key.name for key in DAEMON_KEYS]
    assert refusal(uncommented) == ""
