"""Laws of the configuration: code and schema agree, and the reader raises only ConfigError."""

import re
import sys
import unicodedata

import yaml
from hypothesis import assume, example, given
from hypothesis import strategies as st
from support.config_text import KEYS, SCHEMA, VALIDATOR, refusal
from support.law_examples import examples

ANY_TEXTS = st.text(st.characters(exclude_categories=["Cn", "Cs"]), max_size=6) | st.sampled_from(
    [
        "/",
        "/a",
        "/b c",
        "//",
        "/a/",
        "/a/./b",
        "/..",
        "a",
        "",
        "nvidia",
        "amd",
        "1",
        "null",
        "/\u2028",
        "/\ufeff",
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | ANY_TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXTS, inner, max_size=2),
    max_leaves=4,
)
NAMES = st.sampled_from(["ab", "gpu", "a", "gpu.x", "-a", "a" * 64])
PROFILES = st.lists(
    st.fixed_dictionaries(
        {"name": NAMES, "class": NAMES},
        optional={
            "capabilities": st.lists(st.sampled_from(["compute", "all"]), max_size=2),
            "names": st.lists(st.sampled_from(["index", "uuid", "pci", "name"]), max_size=2),
            "mps": st.booleans() | st.integers(0, 1),
            "other": st.booleans(),
        },
    ),
    max_size=2,
)
SWITCHES = st.sampled_from(["auto", "off", "gpu", True, False, 0, 1000, (1 << 32) - 2, (1 << 32) - 1])


def is_beyond_a_schema(document: object) -> bool:
    """Return whether DOCUMENT has a fault that a schema cannot detect.

    In a schema, 1.0 is an integer, and items are not compared with each other.
    """
    if not isinstance(document, dict):
        return False
    profiles = document.get("profiles")
    rows = [each for each in profiles if isinstance(each, dict)] if isinstance(profiles, list) else []
    repeated = any(
        len({str(row.get(key)) for row in rows}) < len(rows) for key in ("name", "class") if len(rows) > 1
    )
    return repeated or isinstance(document.get("mps_uid"), float)


LIKELY = st.one_of(
    st.lists(st.sampled_from(["/a", "/b", "/c d"]), max_size=3),
    st.sampled_from(["/", "/srv", "/run/nvidia/driver"]),
    st.sampled_from([[], ["nvidia"]]),
    SWITCHES,
    PROFILES,
)
DOCUMENTS = st.dictionaries(st.sampled_from(KEYS) | ANY_TEXTS, LIKELY | VALUES, max_size=3)


@examples(4)
@given(DOCUMENTS | VALUES)
@example({"state_dir": "/a\n"})
@example({"vendors": ["nvidia", "nvidia"]})
def test_code_and_schema_agree_on_every_document(document: object) -> None:
    assume(not is_beyond_a_schema(document))
    text = yaml.safe_dump(document)
    assert yaml.safe_load(text) == document
    assert (refusal(text) == "") == VALIDATOR.is_valid(document)


def test_the_schema_and_the_code_have_the_same_printable_characters() -> None:
    path = re.compile(SCHEMA["$defs"]["path"]["not"]["pattern"])
    characters = [chr(number) for number in range(sys.maxunicode + 1)]
    assigned = [character for character in characters if unicodedata.category(character) != "Cn"]
    refused = set(path.findall("".join(assigned)))
    assert refused == {character for character in assigned if not character.isprintable()}


PIECES = st.sampled_from(
    [
        *KEYS,
        ": ",
        "\n",
        "- ",
        "  ",
        "[",
        "]",
        "{",
        "}",
        "/a",
        "nvidia",
        "#",
        "&a ",
        "*a",
        "!!set ",
        "'",
        '"',
        "\t",
        "? ",
    ]
)


@examples(4)
@given(st.binary(max_size=40) | st.lists(PIECES, max_size=15).map(lambda pieces: "".join(pieces).encode()))
def test_any_bytes_raise_only_a_config_error_of_one_line(data: bytes) -> None:
    assert refusal(data).isprintable()
