"""The bytes of a spec file, which JSON and YAML parsers must read in the same way."""

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.values.inventories import texts

from cdigen.cdi.render import render

NODE = {"path": "/dev/nvidia0", "fileMode": 438, "permissions": "rw"}
MOUNT = {"hostPath": "/a" * 40, "containerPath": "/b" * 40, "type": "bind", "options": ["ro", "rbind"]}
DOCUMENT: dict[str, Any] = {
    "cdiVersion": "0.5.0",
    "kind": "nvidia.com/gpu",
    "devices": [{"name": name, "containerEdits": {"deviceNodes": [NODE, NODE]}} for name in ("0", "1")],
    "containerEdits": {"env": ["A=B"], "mounts": [MOUNT, MOUNT]},
}


def lines(document: dict[str, Any]) -> list[str]:
    return render(document).decode().splitlines()


def test_the_text_ends_in_a_newline_and_has_no_blank_line() -> None:
    assert render(DOCUMENT).endswith(b"}\n")
    assert all(line.strip() for line in lines(DOCUMENT))


def test_every_node_and_mount_has_a_separate_line() -> None:
    text = [line.strip().rstrip(",") for line in lines(DOCUMENT)]
    assert text.count(json.dumps(NODE)) == 4
    assert text.count(json.dumps(MOUNT)) == 2


def test_a_list_of_words_stays_on_one_line() -> None:
    assert '    "env": ["A=B"],' in lines(DOCUMENT)


def test_the_order_of_keys_is_kept() -> None:
    assert list(json.loads(render(DOCUMENT))) == ["cdiVersion", "kind", "devices", "containerEdits"]


@pytest.mark.parametrize("text", ["ドライバ", "😀", "ä/ö"])
def test_letters_of_any_script_are_written_without_escapes(text: str) -> None:
    written = render({"kind": text})
    assert text.encode() in written
    assert b"\\" not in written


VALUES = st.recursive(
    st.booleans() | st.integers(0, 1 << 40) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)
DOCUMENTS = st.dictionaries(texts, VALUES, max_size=5)


@given(DOCUMENTS)
def test_a_json_parser_reads_the_rendered_document(document: dict[str, object]) -> None:
    assert json.loads(render(document)) == document


@given(DOCUMENTS)
def test_a_yaml_parser_reads_the_rendered_document(document: dict[str, object]) -> None:
    assert yaml.safe_load(render(document).decode()) == document


@given(DOCUMENTS)
def test_equal_documents_give_equal_bytes(document: dict[str, object]) -> None:
    assert render(json.loads(render(document))) == render(document)
