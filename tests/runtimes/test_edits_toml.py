"""Keys put into TOML and taken out again: what is not ours stays byte for byte, or the file is refused."""

import time
import tomllib
from typing import Any

import pytest
import tomlkit
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from cdigen.model.errors import ConfigError
from cdigen.runtimes.edits.tomltext import DesiredKey, put, take_back

CRI = ("plugins", "io.containerd.grpc.v1.cri")
SWITCH = DesiredKey(path=(*CRI, "enable_cdi"), value=True)
DIRS = DesiredKey(path=(*CRI, "cdi_spec_dirs"), value=("/etc/cdi", "/var/run/cdi"))
TEXT = DesiredKey(path=(*CRI, "sandbox_image"), value='a "b" \\ c')
FILE = "/etc/containerd/config.toml"

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
    """Return the lines of BEFORE that are not in AFTER, in their order."""
    left = after.splitlines()
    missing = []
    for line in filter(bytes.strip, before.splitlines()):
        if line in left:
            del left[: left.index(line) + 1]
        else:
            missing.append(line)
    return missing


def test_a_text_is_put_in_quotes_and_taken_back() -> None:
    for before in (b"", DEBIANS):
        after, keys = put(before, (TEXT,), FILE)
        assert tomllib.loads(after.decode())["plugins"][CRI[1]]["sandbox_image"] == 'a "b" \\ c'
        assert take_back(after, keys, FILE) == (before, ())


def test_keys_are_put_into_a_table_that_is_there_with_its_indentation() -> None:
    after, keys = put(DEBIANS, (SWITCH, DIRS), FILE)
    assert b'    sandbox_image = "pause"  # a comment\n    enable_cdi = true\n' in after
    assert lost(DEBIANS, after) == []
    assert [key.path for key in keys] == [SWITCH.path, DIRS.path]


def test_a_table_that_is_not_there_comes_at_the_end() -> None:
    after, _ = put(b"version = 2\n", (SWITCH,), FILE)
    assert after == b'version = 2\n\n[plugins."io.containerd.grpc.v1.cri"]\nenable_cdi = true\n'


def test_a_file_without_an_end_of_line_gets_one_before_the_table() -> None:
    after, _ = put(b"version = 2", (SWITCH,), FILE)
    assert after.startswith(b"version = 2\n\n[plugins")


def test_what_is_as_wanted_is_not_touched() -> None:
    after, _ = put(DEBIANS, (SWITCH, DIRS), FILE)
    assert put(after, (SWITCH, DIRS), FILE) == (after, ())


def test_one_is_not_true() -> None:
    after, keys = put(b'[plugins."io.containerd.grpc.v1.cri"]\nenable_cdi = 1\n', (SWITCH,), FILE)
    assert b"enable_cdi = true\n" in after
    assert keys[0].before == "1"


def test_a_value_is_replaced_and_its_comment_stays() -> None:
    before = b'[plugins."io.containerd.grpc.v1.cri"]\n  enable_cdi = false # not yet\n  x = 1\n'
    after, keys = put(before, (SWITCH,), FILE)
    assert after == before.replace(b"false", b"true")
    assert take_back(after, keys, FILE) == (before, ())


def test_a_list_of_several_lines_is_given_back_as_it_was() -> None:
    before = b'[plugins."io.containerd.grpc.v1.cri"]\ncdi_spec_dirs = [\n  "/a", # first\n  "/b",\n]\ny = 2\n'
    after, keys = put(before, (DIRS,), FILE)
    assert take_back(after, keys, FILE) == (before, ())


def test_ends_of_lines_stay_those_of_the_file() -> None:
    before = DEBIANS.replace(b"\n", b"\r\n")
    after, _ = put(before, (SWITCH, DIRS), FILE)
    assert after.count(b"\n") == after.count(b"\r\n") > before.count(b"\n")
    assert lost(before, after) == []


def test_a_table_is_found_wherever_its_parts_are() -> None:
    scattered = b'[plugins."io.containerd.grpc.v1.cri".cni]\nx = 1\n[grpc]\ny = 1\n[plugins.b]\nz = 1\n'
    after, _ = put(scattered, (SWITCH, DIRS), FILE)
    assert lost(scattered, after) == []


def test_dotted_keys_are_added_to() -> None:
    dotted = b'plugins."io.containerd.grpc.v1.cri".x = 1\n[grpc]\na = 1\n'
    after, _ = put(dotted, (SWITCH,), FILE)
    assert lost(dotted, after) == []
    assert tomllib.loads(after.decode())["plugins"]["io.containerd.grpc.v1.cri"] == {
        "x": 1,
        "enable_cdi": True,
    }


def test_an_inline_table_is_refused_with_what_to_write_by_hand() -> None:
    with pytest.raises(ConfigError) as raised:
        put(b"plugins = {a = {b = 1}}\n", (SWITCH,), FILE)
    assert FILE in raised.value.message
    assert "enable_cdi = true" in raised.value.hint


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"version = 2\n[plugins\n", "line 2"),
        (b'a = 1\nb = "unfinished\n', "line 2"),
        (b"a = 1\na = 2\n", "line 2"),
        (b"a = 1\nb = '\xff'\n", "line 2"),
        (b"\xef\xbb\xbfa = 1\n", "line 1"),
    ],
)
def test_a_broken_file_is_refused_with_its_line(content: bytes, line: str) -> None:
    with pytest.raises(ConfigError) as raised:
        put(content, (SWITCH,), FILE)
    assert FILE in raised.value.message
    assert line in raised.value.message
    assert raised.value.kind == "broken-file"


@pytest.mark.parametrize(
    "content",
    [
        b"a = " + b"[" * 30_000 + b"]" * 30_000,
        b"a = " + b"{a=" * 15_000 + b"1" + b"}" * 15_000,
        b".".join([b"a"] * 30_000) + b" = 1\n",
        b"[" + b" . ".join([b'"a"'] * 9_000) + b"]\n",
        b"x = {" + b".".join([b"a"] * 30_000) + b" = 1}\n",
        b"[a]\n" * 100_000,
    ],
    ids=["arrays", "inline tables", "dotted key", "header", "dotted key inside", "large"],
)
def test_a_file_nested_without_end_is_refused_before_it_takes_time_or_memory(content: bytes) -> None:
    begun = time.process_time()
    with pytest.raises(ConfigError) as raised:
        put(content, (SWITCH,), FILE)
    assert FILE in raised.value.message
    assert time.process_time() - begun < 5


def test_dots_in_comments_and_texts_are_no_keys() -> None:
    content = b"# " + b"." * 200 + b"\nx = '" + b"10.0.0.1, " * 100 + b"'\n"
    assert lost(content, put(content, (SWITCH,), FILE)[0]) == []


def test_as_much_as_is_edited_is_edited_in_bounded_time() -> None:
    begun = time.process_time()
    put(
        b"".join(b"[plugins.p%d]\na = 1\n[o%d]\nb = 1\n" % (i, i) for i in range(1_400)), (SWITCH, DIRS), FILE
    )
    assert time.process_time() - begun < 15


def test_taking_back_leaves_what_others_wrote_meanwhile() -> None:
    after, keys = put(DEBIANS, (SWITCH, DIRS), FILE)
    changed = after.replace(b"pause", b"other") + b"[grpc]\n  uid = 1\n"
    back, kept = take_back(changed, keys, FILE)
    assert kept == ()
    assert tomllib.loads(back.decode()) == tomllib.loads(
        (DEBIANS.replace(b"pause", b"other") + b"[grpc]\n  uid = 1\n").decode()
    )
    assert lost(DEBIANS.replace(b"pause", b"other"), back) == []


def test_a_key_that_others_have_changed_stays() -> None:
    after, keys = put(DEBIANS, (SWITCH, DIRS), FILE)
    back, kept = take_back(after.replace(b"enable_cdi = true", b"enable_cdi = false"), keys, FILE)
    assert [key.path for key in kept] == [SWITCH.path]
    assert b"enable_cdi = false" in back
    assert b"cdi_spec_dirs" not in back


def test_a_table_that_was_made_for_our_keys_goes_with_them() -> None:
    after, keys = put(b"version = 2\n", (SWITCH, DIRS), FILE)
    assert take_back(after + b"[grpc]\nuid = 1\n", keys, FILE)[0].startswith(b"version = 2\n")
    assert b"plugins" not in take_back(after, keys, FILE)[0]


def test_a_comment_that_others_put_into_our_table_stays() -> None:
    after, keys = put(b"version = 2\n", (SWITCH,), FILE)
    back, _ = take_back(after.replace(b"enable_cdi", b"# why\nenable_cdi"), keys, FILE)
    assert b"# why\n" in back


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
    """Write DOCUMENT as TOML, with comments, blank lines and indentation here and there."""
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


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(documents, st.data())
def test_whatever_a_file_says_it_says_afterwards_and_our_keys(
    document: dict[str, Any], data: st.DataObject
) -> None:
    text = in_some_form(document, data).encode()
    before = tomllib.loads(text.decode())
    assume(before == document)
    try:
        after, keys = put(text, (SWITCH, DIRS), FILE)
    except ConfigError:
        return  # a value where a table is needed, and the like
    said = tomllib.loads(after.decode())
    ours = said["plugins"]["io.containerd.grpc.v1.cri"]
    assert (ours.pop("enable_cdi"), ours.pop("cdi_spec_dirs")) == (True, ["/etc/cdi", "/var/run/cdi"])
    replaced = [line for line in text.splitlines() if b"enable_cdi" in line]
    assert all(line in replaced for line in lost(text, after))
    back, kept = take_back(after, keys, FILE)
    assert kept == ()
    assert tomllib.loads(back.decode()) == before
    assert lost(text, back) == []


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_edited_or_refused(content: bytes) -> None:
    try:
        after, _ = put(content, (SWITCH,), FILE)
    except ConfigError:
        return
    assert after.startswith(content.strip()[:1])
