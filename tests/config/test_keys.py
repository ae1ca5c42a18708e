"""The table of keys: the settings have its fields, and what is made from it is made anew."""

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
    ALLOW_KEYS,
    DAEMON_KEYS,
    GPU_KIND_KEYS,
    HEALTH_KEYS,
    KEYS,
    KUBELET_KEYS,
    NRI_KEYS,
    PAGE_KEYS,
    PROFILE_KEYS,
    RESOURCE_KEYS,
    SHARED_MEMORY_KEYS,
    SHARING_KEYS,
    Key,
)
from cdigen.model.profile import Profile
from cdigen.vendors.registry import VENDORS

TABLES = [
    (KEYS, Settings),
    (PROFILE_KEYS, Profile),
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
# What another key says: nri.narrow.
ELSEWHERE: dict[type, tuple[str, ...]] = {Profile: ("narrow",)}


@pytest.mark.parametrize(("keys", "cls"), TABLES)
def test_every_field_has_its_key_and_every_key_its_field(keys: tuple[Key, ...], cls: type) -> None:
    own = [name for name in cls.__annotations__ if name not in ELSEWHERE.get(cls, ())]
    assert [key.field or key.name for key in keys] == own
    required = {key.field or key.name for key in keys if key.is_required}
    assert required == set(cls.__annotations__) - vars(cls)["_defaults"].keys()
    names = [name for key in keys for name in (key.name, key.old) if name]
    assert len(names) == len(set(names))


def test_schema_and_example_are_what_the_table_gives_now() -> None:
    assert (REPOSITORY / "schemas/config.schema.json").read_text() == configuration.schema(), (
        "run 'make generated'"
    )
    assert (REPOSITORY / "etc/config.yaml").read_text() == configuration.example(), "run 'make generated'"


def test_the_page_has_the_tables_that_the_table_gives_now() -> None:
    page = (REPOSITORY / "docs/configuration.md").read_text()
    assert page == configuration.page(page), "run 'make generated'"
    for keys, _ in TABLES:
        assert all(f"| `{key.name}` | " in page for key in keys)


def test_the_schema_is_one_and_knows_every_vendor() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$defs"]["vendor"]["enum"] == list(VENDORS)
    assert all(rule["description"] for rule in SCHEMA["properties"].values())


def test_old_names_are_deprecated_in_the_schema() -> None:
    properties = SCHEMA["properties"]["daemon"]["properties"]
    assert {name for name, rule in properties.items() if rule.get("deprecated")} == {
        key.old for key in DAEMON_KEYS if key.old
    }


def test_the_shipped_file_holds_every_key_and_its_lines_are_right_without_the_comment_sign() -> None:
    shipped = (REPOSITORY / "etc/config.yaml").read_text()
    assert read(shipped) == Settings()
    uncommented = re.sub(r"^#(?=\w+:|  )", "", shipped, flags=re.MULTILINE)
    document = yaml.safe_load(uncommented)
    assert tuple(document) == NAMES
    assert list(document["daemon"]) == [key.name for key in DAEMON_KEYS]
    assert refusal(uncommented) == ""
