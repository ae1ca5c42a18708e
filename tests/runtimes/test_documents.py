"""cdigen sets keys in TOML and JSON files: other keys do not change, or cdigen refuses the file."""

import json
import time
import tomllib
from difflib import SequenceMatcher
from typing import Any

import pytest
import tomlkit
from hypothesis import assume, given
from hypothesis import strategies as st
from support.law_examples import examples

from cdigen.model.errors import ConfigError
from cdigen.runtimes.documents import DesiredKey, set_json, set_toml

CRI = ("plugins", "io.containerd.grpc.v1.cri")
SWITCH = DesiredKey(path=(*CRI, "enable_cdi"), value=True)
DIRS = DesiredKey(path=(*CRI, "cdi_spec_dirs"), value=("/etc/cdi", "/var/run/cdi"))
TEXT = DesiredKey(path=(*CRI, "sandbox_image"), value='a "b" \\ c')
FILE = "/etc/containerd/config.toml"
FEATURE = DesiredKey(path=("features", "cdi"), value=True)
FOLDERS = DesiredKey(path=("cdi-spec-dirs",), value=("/etc/cdi", "/var/run/cdi"))
DAEMON_JSON = "/etc/docker/daemon.json"

DEBIANS = b"""\
version = 2

[plugins]
  [plugins."io.containerd.grpc.v1.cri"]
    # Debian's
    sandbox_image = "pause"  # a comment
    [plugins."io.containerd.grpc.v1.cri".cni]
      bin_dir = "/usr/lib/cni"
  [plugins."io.containerd.internal.v1.opt"]
    path = "/var/lib/containerd/opt"
"""


def lost(before: bytes, after: bytes) -> list[bytes]:
    """Return the lines of BEFORE that are not in AFTER, in their order, with repetitions."""
    old, new = before.splitlines(), after.splitlines()
    same = SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
    kept = {number for block in same for number in range(block.a, block.a + block.size)}
    return [line for number, line in enumerate(old) if number not in kept and line.strip()]


def test_a_text_is_put_in_quotes() -> None:
    for before in (b"", DEBIANS):
        after, _ = set_toml(before, (TEXT,), FILE)
        assert tomllib.loads(after.decode())["plugins"][CRI[1]]["sandbox_image"] == 'a "b" \\ c'


def test_keys_are_put_into_an_existing_table() -> None:
    after, names = set_toml(DEBIANS, (SWITCH, DIRS), FILE)
    assert lost(DEBIANS, after) == []
    assert names == (
        'plugins."io.containerd.grpc.v1.cri".enable_cdi',
        'plugins."io.containerd.grpc.v1.cri".cdi_spec_dirs',
    )


SWITCH_NAME = 'plugins."io.containerd.grpc.v1.cri".enable_cdi'
HEADER = b'[plugins."io.containerd.grpc.v1.cri"]\n'
APPENDED = HEADER + b"enable_cdi = true\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"version = 2\n", b"version = 2\n\n" + APPENDED),
        (b"\xef\xbb\xbfversion = 2\n", b"version = 2\n\n" + APPENDED),
        (HEADER + b"enable_cdi = 1\n", APPENDED),
        (
            HEADER + b"  enable_cdi = false # not yet\n  x = 1\n",
            HEADER + b"  enable_cdi = true # not yet\n  x = 1\n",
        ),
    ],
    ids=["missing table", "byte order mark", "1 is not true", "comment stays"],
)
def test_a_key_is_set_and_the_rest_of_the_file_is_unchanged(before: bytes, after: bytes) -> None:
    assert set_toml(before, (SWITCH,), FILE) == (after, (SWITCH_NAME,))


def test_a_table_is_added_to_a_file_whose_last_line_has_no_end() -> None:
    after, names = set_toml(b"version = 2", (SWITCH,), FILE)
    # tomlkit 0.11 adds an empty line.
    assert (after.replace(b"\n\n", b"\n"), names) == (b"version = 2\n" + APPENDED, (SWITCH_NAME,))


def test_a_file_with_the_desired_values_is_unchanged() -> None:
    after, _ = set_toml(DEBIANS, (SWITCH, DIRS), FILE)
    assert set_toml(after, (SWITCH, DIRS), FILE) == (after, ())


def test_keys_are_added_to_a_table_whose_parts_are_separate() -> None:
    scattered = b'[plugins."io.containerd.grpc.v1.cri".cni]\nx = 1\n[grpc]\ny = 1\n[plugins.b]\nz = 1\n'
    after, _ = set_toml(scattered, (SWITCH, DIRS), FILE)
    assert lost(scattered, after) == []


def test_a_key_is_added_to_a_table_of_dotted_keys() -> None:
    dotted = b'plugins."io.containerd.grpc.v1.cri".x = 1\n[grpc]\na = 1\n'
    after, _ = set_toml(dotted, (SWITCH,), FILE)
    assert lost(dotted, after) == []
    assert tomllib.loads(after.decode())["plugins"]["io.containerd.grpc.v1.cri"] == {
        "x": 1,
        "enable_cdi": True,
    }


def test_an_inline_table_is_refused_with_the_keys_to_set_manually() -> None:
    with pytest.raises(ConfigError) as raised:
        set_toml(b"plugins = {a = {b = 1}}\n", (SWITCH,), FILE)
    assert FILE in raised.value.message
    assert 'plugins."io.containerd.grpc.v1.cri".enable_cdi = true' in raised.value.hint


def test_a_value_where_a_table_is_needed_is_refused() -> None:
    with pytest.raises(ConfigError, match="a value at 'plugins', where a table is needed"):
        set_toml(b"plugins = 1\n", (SWITCH,), FILE)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"version = 2\n[plugins\n", "line 2"),
        (b'a = 1\nb = "unfinished\n', "line 2"),
        (b"a = 1\na = 2\n", "line 2"),
        (b"a = 1\nb = '\xff'\n", "line 2"),
    ],
)
def test_a_broken_file_is_refused_with_its_line(content: bytes, line: str) -> None:
    with pytest.raises(ConfigError) as raised:
        set_toml(content, (SWITCH,), FILE)
    assert FILE in raised.value.message
    assert line in raised.value.message
    assert raised.value.kind == "broken-file"


@pytest.mark.wall_clock
@pytest.mark.parametrize(
    "content",
    [
        b"a = " + b"[" * 30_000 + b"]" * 30_000,
        b"a = " + b"{a=" * 15_000 + b"1" + b"}" * 15_000,
    ],
    ids=["arrays", "inline tables"],
)
def test_a_deeply_nested_file_is_refused_quickly(content: bytes) -> None:
    begun = time.process_time()
    with pytest.raises(ConfigError) as raised:
        set_toml(content, (SWITCH,), FILE)
    assert FILE in raised.value.message
    assert time.process_time() - begun < 5


names = st.sampled_from(["plugins", "io.containerd.grpc.v1.cri", "a", "b", "enable_cdi", "x y", "é"])
scalars = st.one_of(
    st.booleans(),
    st.integers(-100, 100),
    st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF, exclude_characters="\x7f"), max_size=8),
    st.lists(st.integers(0, 9), max_size=3),
)
documents = st.recursive(
    st.dictionaries(names, scalars, max_size=4),
    lambda below: st.dictionaries(names, st.one_of(scalars, below), max_size=4),
    max_leaves=12,
)


def in_some_form(document: dict[str, Any], data: st.DataObject, path: tuple[str, ...] = ()) -> str:
    """Return DOCUMENT as TOML, with random comments, blank lines and indentation."""
    plain = {key: item for key, item in document.items() if not isinstance(item, dict)}
    tables = {key: item for key, item in document.items() if isinstance(item, dict)}
    text = ""
    if path:
        header = ".".join(tomlkit.key(part).as_string() for part in path)
        text += data.draw(st.sampled_from(["", "\n", "# note\n", "  "])) + f"[{header}]"
        text += data.draw(st.sampled_from(["\n", "  # here\n"]))
    for key, item in plain.items():
        indent = data.draw(st.sampled_from(["", "  ", "\t"]))
        text += indent + tomlkit.dumps({key: item}).rstrip("\n")
        text += data.draw(st.sampled_from(["\n", " # c\n", "\n\n"]))
    for key, item in tables.items():
        text += in_some_form(item, data, (*path, key))
    return text


@examples(4)
@given(documents, st.data())
def test_an_edited_toml_file_keeps_its_values_and_has_the_new_keys(
    document: dict[str, Any], data: st.DataObject
) -> None:
    text = in_some_form(document, data).encode()
    before = tomllib.loads(text.decode())
    assume(before == document)
    try:
        after, _ = set_toml(text, (SWITCH, DIRS), FILE)
    except ConfigError:
        return  # the document has a value where a table is needed, or has a form that tomlkit cannot edit
    former = document.get("plugins", {}).get("io.containerd.grpc.v1.cri", {}).get("enable_cdi")
    assume(not isinstance(former, dict))  # containerd rejects such a file; the edit replaces the table
    values = tomllib.loads(after.decode())
    ours = values["plugins"]["io.containerd.grpc.v1.cri"]
    assert (ours.pop("enable_cdi"), ours.pop("cdi_spec_dirs")) == (True, ["/etc/cdi", "/var/run/cdi"])
    replaced = [line for line in text.splitlines() if b"enable_cdi" in line]
    assert all(line in replaced for line in lost(text, after))
    assert set_toml(after, (SWITCH, DIRS), FILE) == (after, ())


@examples(4)
@given(st.binary(max_size=60))
def test_any_bytes_are_edited_or_refused(content: bytes) -> None:
    try:
        after, _ = set_toml(content, (SWITCH,), FILE)
    except ConfigError:
        return
    assert after.startswith(content.strip()[:1])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            '{\n    "bridge": "none"\n}\n',
            (
                '{\n    "bridge": "none",\n    "features": {\n        "cdi": true\n    },\n'
                '    "cdi-spec-dirs": [\n        "/etc/cdi",\n        "/var/run/cdi"\n    ]\n}\n'
            ),
        ),
        (
            '{\r\n\t"features": {"x": false}\r\n}',
            (
                '{\n\t"features": {\n\t\t"x": false,\n\t\t"cdi": true\n\t},\n'
                '\t"cdi-spec-dirs": [\n\t\t"/etc/cdi",\n\t\t"/var/run/cdi"\n\t]\n}'
            ),
        ),
        (
            '{"a": "\u00e9"}',
            '{"a": "\u00e9", "features": {"cdi": true}, "cdi-spec-dirs": ["/etc/cdi", "/var/run/cdi"]}',
        ),
        (
            "",
            (
                '{\n  "features": {\n    "cdi": true\n  },\n'
                '  "cdi-spec-dirs": [\n    "/etc/cdi",\n    "/var/run/cdi"\n  ]\n}\n'
            ),
        ),
    ],
)
def test_json_keeps_its_own_indentation(before: str, after: str) -> None:
    assert set_json(before.encode(), (FEATURE, FOLDERS), DAEMON_JSON)[0].decode() == after


def test_json_with_a_byte_order_mark_is_read() -> None:
    assert set_json(b'\xef\xbb\xbf{"a": 1}', (FEATURE,), DAEMON_JSON)[0] == (
        b'{"a": 1, "features": {"cdi": true}}'
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"a": 1\n,}', "line 2"),
        (b'{\n "a": 1,\n "a": 2}', "'a' occurs twice"),
        (b'{"f": {"b": 1, "b": 1}}', "'b' occurs twice"),
        (b"[1]", "not a JSON object"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": 1e999}', "cannot be written again"),
        (b'{"a": "\\ud800"}', "cannot be written again"),
        (b'{"a": 1}\n{}', "line 2"),
        (b'{"a": "\xff"}', "UTF-8"),
        (b'{"features": true}', "a value at 'features'"),
        (b'{"a":' * 100_000, "not JSON"),
    ],
)
def test_a_broken_json_file_is_refused(content: bytes, words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        set_json(content, (FEATURE,), DAEMON_JSON)
    assert DAEMON_JSON in raised.value.message
    assert words in raised.value.message


json_documents = st.dictionaries(
    st.sampled_from(["features", "cdi-spec-dirs", "a", 'q"uote', "é\n", ""]),
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5)),
        lambda below: st.one_of(
            st.lists(below, max_size=3),
            st.dictionaries(st.sampled_from(["cdi", "x", "{", "y,"]), below, max_size=3),
        ),
        max_leaves=8,
    ),
    max_size=5,
)
forms = st.sampled_from([
    {"indent": 2}, {"indent": 4}, {"indent": "\t"}, {}, {"separators": (",", ":")}, {"indent": 0},
    {"separators": (" , ", " : "), "ensure_ascii": False},
])  # fmt: skip


@examples(4)
@given(json_documents, forms, st.sampled_from(["", "\n", "\r\n  "]))
def test_an_edited_json_file_keeps_its_values_and_has_the_new_keys(
    document: dict[str, Any], form: dict[str, Any], end: str
) -> None:
    text = (json.dumps(document, **form) + end).encode()
    try:
        after, _ = set_json(text, (FEATURE, FOLDERS), DAEMON_JSON)
    except ConfigError:
        assert "features" in document
        assert not isinstance(document["features"], dict)
        return
    features = document.get("features", {})
    ours = {"features": {**features, "cdi": True}, "cdi-spec-dirs": ["/etc/cdi", "/var/run/cdi"]}
    assert json.loads(after) == {**document, **ours}
    assert list(json.loads(after))[: len(document)] == list(document)
    assert set_json(after, (FEATURE, FOLDERS), DAEMON_JSON) == (after, ())


@examples(4)
@given(st.binary(max_size=40))
def test_any_bytes_are_edited_as_json_or_refused(content: bytes) -> None:
    try:
        after, _ = set_json(content, (FEATURE,), DAEMON_JSON)
    except ConfigError:
        return
    assert json.loads(after)["features"] == {"cdi": True}
