"""Every key of the configuration is used: the code outside cdigen/config reads the field of the key."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.paths import REPOSITORY
from support.source_names import syntax_tree

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

TABLES: tuple[tuple[type, tuple[Key, ...]], ...] = (
    (Settings, KEYS),
    (Profile, PROFILE_KEYS),
    (DevicesConfig, DEVICES_KEYS),
    (DeviceFilter, EXCLUDE_KEYS),
    (DaemonConfig, DAEMON_KEYS),
    (HealthConfig, HEALTH_KEYS),
    (PageConfig, PAGE_KEYS),
    (NriConfig, NRI_KEYS),
    (AllowRule, ALLOW_KEYS),
    (GpuKind, GPU_KIND_KEYS),
    (KubeletConfig, KUBELET_KEYS),
    (ResourceRow, RESOURCE_KEYS),
    (SharingRow, SHARING_KEYS),
    (SharedMemory, SHARED_MEMORY_KEYS),
)
FIELDS = [(cls.__name__, key.field or key.name) for cls, keys in TABLES for key in keys]


def fields_read(source: str) -> Iterator[str]:
    """Yield the names of the attributes that the code SOURCE reads."""
    for node in ast.walk(syntax_tree(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield node.attr


@pytest.fixture(scope="module")
def read() -> frozenset[str]:
    """Return the names of all attributes that modules outside cdigen/config read."""
    package = REPOSITORY / "cdigen"
    modules = (path for path in package.rglob("*.py") if not path.is_relative_to(package / "config"))
    return frozenset(name for path in modules for name in fields_read(Path(path).read_text(encoding="utf-8")))


@pytest.mark.parametrize(("cls", "field"), FIELDS)
def test_the_field_of_each_key_is_read_outside_the_configuration(
    read: frozenset[str], cls: str, field: str
) -> None:
    assert field in read, f"no module reads the field {field} of {cls}"


def test_a_field_that_is_only_set_or_named_is_not_read(read: frozenset[str]) -> None:
    source = 'config.unused_key = 1\nunused_key = {"unused_key": 2}\nprint(config.used_key)'
    assert list(fields_read(source)) == ["used_key"]
    assert "key_without_a_reader" not in read
