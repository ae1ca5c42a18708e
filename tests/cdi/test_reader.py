from __future__ import annotations

import json
from time import process_time
from typing import TYPE_CHECKING

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.values.spec_documents import plain, rich, to_bytes, verdicts

from cdigen.cdi.reader import MAX_SIZE, parse_document
from cdigen.cdi.rules.fields import MAX_DEPTH
from cdigen.cdi.text.event_reader import MAX_FINDINGS

if TYPE_CHECKING:
    from cdigen.cdi.reader import ParsedDocument

TEXT = json.dumps(plain())


def read(text: str | bytes, *, is_yaml: bool | None = False) -> ParsedDocument:
    return parse_document(text.encode() if isinstance(text, str) else text, yaml=is_yaml)


def rules(parsed: ParsedDocument) -> list[str]:
    return [finding.rule for finding in parsed.findings]


@pytest.mark.parametrize("indent", [None, 1, "\t"])
def test_good_json_in_any_layout_is_read_without_a_finding(indent: int | str | None) -> None:
    parsed = read(json.dumps(rich(), indent=indent, ensure_ascii=False))
    assert (parsed.document, parsed.findings) == (rich(), ())


@pytest.mark.parametrize("indent", [None, 1, "\t"])
def test_valid_json_is_accepted_without_libyaml(
    monkeypatch: pytest.MonkeyPatch, indent: int | str | None
) -> None:
    monkeypatch.delattr(yaml, "CSafeLoader")
    text = json.dumps({**rich(), "annotations": {"a": "\n"}}, indent=indent, ensure_ascii=False)
    assert rules(read(text)) == []


@pytest.mark.parametrize(
    ("text", "rule", "place"),
    [
        ("", "empty-document", ""),
        (" \n", "empty-document", ""),
        ("{", "json-syntax", "line 1, column 2"),
        ('{\n "a": 1\n,}', "json-syntax", "line 3, column "),
        ("{'a': 1}", "json-syntax", "line 1, column 2"),
        ("cdiVersion: 0.5.0", "json-syntax", "line 1, column 1"),
        ("// comment\n{}", "json-syntax", "line 1, column 1"),
        ('{"a": "\n"}', "json-syntax", "line 1, column 8"),
        ("{} {}", "trailing-data", "line 1, column 4"),
        ("{}\n---\n{}", "trailing-data", "line 2, column 1"),
        ('{"a": 1,\n "a": 2}', "duplicate-key", "line 2, column 2"),
        ('{"a": NaN}', "number-not-finite", "line 1, column 7"),
        ('{"a": -Infinity}', "number-not-finite", "line 1, column 7"),
        ('{"a": 1e999}', "number-out-of-range", "line 1, column 7"),
        ('{"a": ' + "9" * 5000 + "}", "number-out-of-range", "line 1, column 7"),
        ('{"a": -9223372036854775809}', "number-out-of-range", "line 1, column 7"),
        ('\t{"a": 1}', "leading-tab", "line 1, column 1"),
        ('\n  \t{"a": 1}', "leading-tab", "line 2, column 3"),
        ('{"a": 1}\n\t\n', "leading-tab", "line 2, column 1"),
        ('{"a": "\\/"}', "escaped-slash", "line 1, column 8"),
        ('{"a": "\\ud83d\\ude00"}', "surrogate-escape", "line 1, column 8"),
        ('{"a": "\\ud800"}', "lone-surrogate", "line 1, column 8"),
        ('{"a": "\\uDE00\\ud83d"}', "lone-surrogate", "line 1, column 8"),
        ('{"a": "\x7f"}', "control-character", "line 1, column 8"),
        ('{"a": "\u2028"}', "line-separator", "line 1, column 8"),
        ('{"' + "k" * 1023 + '": 1}', "key-too-long", "line 1, column 2"),
        ('{"' + "\\u0041" * 171 + '": 1}', "key-too-long", "line 1, column 2"),
        ('{"k"' + " " * 1022 + ": 1}", "key-too-long", "line 1, column 2"),
        ('{"k"\n: 1}', "key-split", "line 1, column 2"),
        ("\ufeff{}", "byte-order-mark", ""),
        ("[]", "not-an-object", ""),
        ("null", "not-an-object", ""),
        ("5", "not-an-object", ""),
    ],
)
def test_a_problem_in_json_is_reported_with_its_line_and_column(text: str, rule: str, place: str) -> None:
    parsed = read(text)
    assert rules(parsed) == [rule]
    assert place in parsed.findings[0].message


@pytest.mark.parametrize(
    "text",
    [
        '{"a": "\\\\/", "b": "\\\\ud83d", "c": "/"}',
        '{"a": "\\u0041\\n\\t\\"\\u0000"}',
        '{"' + "k" * 1022 + '": 1}',
        '{"a": "' + "v" * 5000 + '"}',
        '{"a"  :\n1}\t\n',
        '{\r\n\t"a": 1\r\n}\r\n',
        '{"a": "x"\n ,"b": 2}',
        '{"a": 18446744073709551615, "b": -9223372036854775808, "c": 1.5e3}',
        '{"a": "😀"}',
    ],
)
def test_a_text_that_only_resembles_a_problem_has_no_finding(text: str) -> None:
    assert rules(read(text)) == []


def test_a_repeated_key_is_reported_with_its_json_path() -> None:
    parsed = read('{"devices": [{"name": 1}, {"a b": {"x": [0, {}], "y": 1, "y": 2}}]}')
    assert [finding.path for finding in parsed.findings] == ['$.devices[1]["a b"].y']


def test_a_file_with_several_problems_has_all_findings_and_a_document() -> None:
    parsed = read('\t{"a": "\\/", "a": NaN, "b": "\\ud800"} x')
    assert set(rules(parsed)) == {
        *("leading-tab", "escaped-slash", "duplicate-key", "number-not-finite"),
        *("lone-surrogate", "trailing-data"),
    }
    assert parsed.document is not None


def test_the_number_of_findings_of_a_file_is_limited() -> None:
    parsed = read("{" + ", ".join(['"a": NaN'] * 5000) + "}")
    assert len(parsed.findings) == MAX_FINDINGS


def test_bytes_that_are_not_utf8_are_reported_with_their_position() -> None:
    parsed = read(b'{"a":\n"\xff"}')
    assert rules(parsed) == ["not-utf8"]
    assert "line 2, column 2" in parsed.findings[0].message


def test_a_utf16_file_is_reported_as_not_utf8() -> None:
    assert rules(read(TEXT.encode("utf-16"))) == ["not-utf8"]


def test_a_file_above_the_size_limit_is_not_read() -> None:
    parsed = read(b"{" + b" " * MAX_SIZE)
    assert (parsed.document, rules(parsed)) == (None, ["too-large"])


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 990, 10_000, 1_000_000])
@pytest.mark.parametrize("is_yaml", [False, True])
def test_a_deeply_nested_file_has_a_finding_and_raises_no_recursion_error(levels: int, is_yaml: bool) -> None:  # noqa: FBT001
    for text in ("[" * levels + "]" * levels, "[" * levels, '{"a":' * levels + "1" + "}" * levels):
        parsed = read(text, is_yaml=is_yaml)
        assert parsed.document is None
        assert rules(parsed)[0] in {"too-deep", "json-syntax"}


def test_a_document_with_the_maximum_depth_is_read() -> None:
    text = '{"a":' * MAX_DEPTH + "1" + "}" * MAX_DEPTH
    assert rules(read(text)) == []
    assert rules(read(text, is_yaml=True)) == []


@pytest.mark.parametrize(
    ("text", "rule", "place"),
    [
        ("", "empty-document", ""),
        ("a: [", "yaml-syntax", "line 1, column 5"),
        ("a: 1\n b: 2", "yaml-syntax", "line 2"),
        ("\ta: 1", "yaml-syntax", "line 1, column 1"),
        ("%YAML 1.2\n---\na: 1", "yaml-syntax", "line 1, column 1"),
        ("a: 1\n---\nb: 2", "several-documents", "line 2, column 1"),
        ("a: 1\n...\n@", "trailing-data", "line 3, column 1"),
        ("a: 1\nb: 2\na: 3", "duplicate-key", "line 3, column 1"),
        ("a: &x 1", "yaml-alias", "line 1, column 4"),
        ("a: !!str 1", "yaml-tag", "line 1"),
        ("a: !x {}", "yaml-tag", "line 1"),
        ("1: a", "yaml-key", "line 1, column 1"),
        ("? [a]\n: b", "yaml-key", "line 1, column 3"),
        ("~: b", "yaml-key", "line 1, column 1"),
        ('a: "\\/"', "escaped-slash", "line 1, column 5"),
        ("a: [b?c]", "yaml-syntax", "line 1, column 5"),
        ("a: \x01", "control-character", "line 1, column 4"),
        ("- a", "not-an-object", ""),
    ],
)
def test_a_problem_in_yaml_is_reported_with_its_line_and_column(text: str, rule: str, place: str) -> None:
    parsed = read(text, is_yaml=True)
    assert rules(parsed) == [rule]
    assert place in parsed.findings[0].message


def test_yaml_values_have_the_types_that_the_loaders_read() -> None:
    text = "a: 0666\nb: yes\nc: 1e3\nd: 2001-01-01\ne: ~\nf: 12:30\ng: '0'\nh: [1_000, 0x1F, .5]\n"
    assert read(text, is_yaml=True).document == {
        "a": 438,
        "b": True,
        "c": 1000.0,
        "d": "2001-01-01",
        "e": None,
        "f": "12:30",
        "g": "0",
        "h": [1000, 31, 0.5],
    }


def test_equal_yaml_and_json_files_give_the_same_document() -> None:
    text = yaml.safe_dump(rich(), sort_keys=False)
    parsed = read(text, is_yaml=True)
    assert (parsed.document, parsed.findings) == (rich(), ())


@pytest.mark.wall_clock
def test_a_file_with_aliases_is_not_expanded_and_has_no_document() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    start = process_time()
    parsed = read("\n".join(lines), is_yaml=True)
    assert (parsed.document, rules(parsed)) == (None, ["yaml-alias"])
    assert process_time() - start < 1


def test_an_anchor_that_contains_itself_is_refused() -> None:
    assert "yaml-syntax" in rules(read("a: &x [*x]", is_yaml=True))


def test_without_a_file_name_text_that_starts_with_a_brace_is_json() -> None:
    assert rules(read("{'a': 1}", is_yaml=None)) == ["json-syntax"]
    assert read("a: 1", is_yaml=None).document == {"a": 1}
    assert read(f"\ufeff \n{TEXT}", is_yaml=None).document == plain()


HOSTILE = st.lists(
    st.sampled_from(
        [
            b"{", b"}", b"[", b"]", b'"', b":", b",", b"\\", b"\\u", b"\\ud83d", b"d800", b"/", b"\t",
            b"\n", b"---\n", b"...\n", b"&a ", b"*a", b"<<: ", b"!!int ", b"? ", b"- ", b"#", b"|\n ", b">",
            b"%YAML 9", b"NaN", b"-", b"1e999", b"9" * 30, b"null", b"\xff", b"\xf0\x9f", b"\x00", b"\x7f",
            b"\xc2\x85", b'"a": 1', b"a: 1\n", b'{"a": [', b"\xef\xbb\xbf", b"\xff\xfe", b"\\U00110000",
            b"'", b"0x",
        ]
    ),
    max_size=30,
).map(b"".join)  # fmt: skip


@settings(deadline=2000)
@given(data=HOSTILE | st.binary(max_size=200), is_yaml=st.sampled_from([True, False, None]))
@example(data=b'"\\UFFFFFFFF"', is_yaml=True)
@example(data=b"%YAML 99999999999999999999.1\n--- a", is_yaml=True)
@example(data=b'{"' + b"k" * 2000, is_yaml=False)
def test_any_bytes_are_read_without_an_exception(data: bytes, is_yaml: bool | None) -> None:  # noqa: FBT001
    parsed = parse_document(data, yaml=is_yaml)
    assert parsed.document is not None or parsed.findings
    assert set(verdicts(data, yaml=bool(is_yaml)).values()) <= {"accept", "reject", "panic", "unknown"}


@given(HOSTILE)
def test_json_without_a_finding_is_yaml_with_the_same_value(data: bytes) -> None:
    parsed = parse_document(data, yaml=False)
    if not parsed.findings:
        assert parse_document(data, yaml=True).document == parsed.document


@pytest.mark.wall_clock
@pytest.mark.parametrize(
    "data",
    [
        b'{"a": "' + b"\\" * 200_000,
        b'{"a": "' + b"\\u0041" * 100_000 + b'"}',
        b'"' + b"a" * 1_000_000,
        b'{"a":' + b" " * 1_000_000 + b"1}",
        b'{"a"' + b"\n" * 300_000 + b": 1}",
        b'{"a": [' + b'"x"\n' * 100_000,
        b"\n" * 1_000_000 + b"x",
        to_bytes({f"k{n}": n for n in range(50_000)}),
    ],
    ids=["backslashes", "escapes", "open string", "spaces", "split key", "no commas", "lines", "keys"],
)
def test_a_hostile_file_is_parsed_within_2_s(data: bytes) -> None:
    start = process_time()
    parse_document(data, yaml=False)
    assert process_time() - start < 2
