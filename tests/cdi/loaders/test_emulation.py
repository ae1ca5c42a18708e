from __future__ import annotations

import json
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING

import pytest
import yaml
from support.values.spec_documents import plain, rich, to_bytes, verdicts, with_edits, with_node

from cdigen.cdi.library import DEFAULT_RELEASES
from cdigen.cdi.loaders.emulation import loader_verdicts
from cdigen.cdi.reader import MAX_SIZE
from cdigen.cdi.text.events import read_yaml
from cdigen.cdi.text.scalars import as_text, resolve

if TYPE_CHECKING:
    from collections.abc import Iterator

DATA = Path(__file__).resolve().parents[2] / "data"
CONFORMANCE = DATA / "cdi-conformance"

PANICS = "panic"
REJECTS = "reject"
ACCEPTS = "accept"
UNKNOWN = "unknown"

# Documents with an unknown verdict. The emulation does not cover a field in two spellings, a float without a
# short text, a null entry in a document with other errors, merge keys, or an escaped apostrophe.
NOT_FOLLOWED = {
    *("casedup", "casedup2", "casedup3", "drawn-yaml-089"),
    *("trap-casedup", "trap-casedup2", "trap-casedup3", "trap-casedup4", "trap-casedup5"),
    *("drawn-sem-006", "drawn-sem-027", "drawn-sem-066", "trap-node-fileMode-7", "trap-lit-name-2783b2"),
    *("trap-lit-ann-2783b2", "trap-lit-ver-1a6621", "trap-lit-name-6d3edd", "trap-lit-ver-6d3edd"),
    *("trap-lit-ver-e3fbc3", "trap-lit-ann-ccca4a"),
    *("drawn-sem-047", "drawn-sem-106", "drawn-sem-149", "drawn-yaml-047"),
    *(
        "trap-nulln-65b8e3",
        "trap-nulln-6122f3",
        "trap-nullmd-83c46c",
        "trap-nullm-ef12c9",
        "trap-nullmd-ef12c9",
    ),
    *("merge", "merge-ok", "trap-lit-annkj-9c1628", "trap-form-merge", "trap-form-merge2"),
    *("trap-form-merge3", "trap-form-merge4", "trap-form-merge5", "trap-form-merge6", "trap-form-merge7"),
    *("trap-form-merge9", "trap-form-merge10", "trap-form-merge11", "trap-form-merge12"),
    *("trap-form-merge13", "trap-form-merge14", "trap-form-merge15", "trap-form-merge16", "trap-esc-39"),
}


def long_annotation() -> bytes:
    return json.dumps({**plain(), "cdiVersion": "0.6.0", "annotations": {"k": "x" * 300_000}}).encode()


def long_env() -> bytes:
    return json.dumps({**plain(), "containerEdits": {"env": ["A=" + "x" * 200_000]}}).encode()


# Two conformance documents with a long text of one letter, which the repository does not contain.
MADE = {"41-annotation-long.json": long_annotation(), "65-longenv.json": long_env()}


def conformance() -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the file name of each conformance document and the verdicts of the real libraries."""
    rows = (CONFORMANCE / "verdicts.tsv").read_text(encoding="utf-8").splitlines()
    versions = rows[0].split("\t")[2:]
    for row in rows[1:]:
        name, _schema, *answers = row.split("\t")
        yield name, dict(zip(versions, answers, strict=True))


def observed() -> Iterator[tuple[str, bytes, dict[str, str]]]:
    """Yield name, bytes, and verdicts of the real libraries for each of cdigen's own test documents."""
    for line in (DATA / "cdi-loaders" / "documents.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        data = row["text"].encode() if "text" in row else bytes.fromhex(row["hex"])
        yield row["name"], data, row["verdicts"]


@pytest.mark.parametrize(("name", "expected"), [pytest.param(*row, id=row[0]) for row in conformance()])
def test_the_verdicts_equal_the_verdicts_of_the_real_libraries(name: str, expected: dict[str, str]) -> None:
    data = MADE[name] if name in MADE else (CONFORMANCE / "specs" / name).read_bytes()
    assert verdicts(data, yaml=False, versions=tuple(expected)) == expected


@pytest.mark.parametrize("is_yaml", [False, True])
def test_each_verdict_on_a_random_document_is_unknown_or_correct(is_yaml: bool) -> None:  # noqa: FBT001
    wrong, unknown = [], set()
    for name, data, expected in observed():
        answers = verdicts(data, yaml=is_yaml, versions=tuple(expected))
        if UNKNOWN in answers.values():
            unknown.add(name)
        wrong += [
            (name, version)
            for version, answer in answers.items()
            if answer not in (expected[version], UNKNOWN)
        ]
    assert wrong == []
    assert unknown == NOT_FOLLOWED


def test_without_libyaml_no_verdict_is_wrong() -> None:
    differing = []
    for name, data, expected in observed():
        if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
            continue
        try:
            text = data.decode().removeprefix("\ufeff")
        except UnicodeDecodeError:
            continue
        read = read_yaml(text, loader=yaml.SafeLoader)
        if read.is_refused and not read.is_unsure and set(expected.values()) != {REJECTS}:
            differing.append(name)
    assert differing == []


def answers_of(document: object, *versions: str) -> list[str]:
    data = document if isinstance(document, bytes) else to_bytes(document)
    return list(verdicts(data, yaml=False, versions=versions or DEFAULT_RELEASES).values())


def test_a_field_is_refused_by_releases_that_are_older_than_the_field() -> None:
    assert answers_of({**plain(), "annotations": {}}, "0.5.4", "0.6.0") == [REJECTS, ACCEPTS]
    document = with_edits(intelRdt={})
    assert answers_of({**document, "cdiVersion": "0.7.0"}, "0.6.2", "0.7.0") == [REJECTS, ACCEPTS]
    assert answers_of(with_edits(netDevices=[]), "1.0.1", "1.1.0") == [REJECTS, ACCEPTS]


@pytest.mark.parametrize(
    ("devices", "verdict"),
    [
        ([("a", "b"), ("c", "d")], ACCEPTS),
        ([("a", "b"), ("a", "d")], REJECTS),
        ([("a", "b"), ("c", "b")], REJECTS),
        ([("", "b")], REJECTS),
        ([("a", "")], REJECTS),
    ],
    ids=["two devices", "one host interface twice", "one name twice", "no host interface", "no name"],
)
def test_a_network_device_has_two_unique_names(devices: list[tuple[str, str]], verdict: str) -> None:
    rows = [{"hostInterfaceName": interface, "name": name} for interface, name in devices]
    assert answers_of(with_edits(netDevices=rows), "1.1.0") == [verdict]


def test_a_removed_field_is_refused_from_the_release_without_the_field_on() -> None:
    document = {**with_edits(intelRdt={"enableCMT": True}), "cdiVersion": "0.7.0"}
    assert answers_of(document, "0.7.2", "1.0.1", "1.1.0", "main") == [ACCEPTS, ACCEPTS, REJECTS, REJECTS]


def test_the_next_release_has_the_verdicts_of_the_development_branch() -> None:
    nodes = [{"path": "/dev/a", "permissions": "none"}]
    assert answers_of(with_edits(deviceNodes=nodes), "1.1.0", "next", "main") == [REJECTS, ACCEPTS, ACCEPTS]
    one_letter = {**plain(), "kind": "v/gpu"}
    assert answers_of(one_letter, "1.1.0", "next", "main") == [PANICS, ACCEPTS, ACCEPTS]
    assert answers_of({**plain(), "cdiVersion": "1.2.0"}, "next", "main") == [REJECTS, REJECTS]


def test_a_spec_version_is_accepted_from_the_release_of_the_same_version_on() -> None:
    document = {**plain(), "cdiVersion": "0.8.0"}
    assert answers_of(document, "0.7.2", "0.8.0", "1.0.1") == [REJECTS, ACCEPTS, ACCEPTS]


def test_a_one_letter_vendor_crashes_every_release_except_the_development_branch() -> None:
    document = {**plain(), "kind": "v/gpu"}
    assert answers_of(document, "0.5.2", "1.1.0", "main") == [PANICS, PANICS, ACCEPTS]


def test_a_null_entry_crashes_the_loader_only_if_the_loader_reads_it() -> None:
    assert set(answers_of({**plain(), "containerEdits": {"mounts": [None]}})) == {PANICS}
    document = {**plain(), "cdiVersion": "0.9.0", "containerEdits": {"mounts": [None]}}
    assert set(answers_of(document)) == {REJECTS}


def test_the_verdict_is_unknown_if_the_order_of_a_go_map_decides() -> None:
    document = {**with_edits(netDevices=[{"hostInterfaceName": "a", "name": "b"}], mounts=[None])}
    assert answers_of({**document, "cdiVersion": "1.0.0"}, "1.1.0") == ["unknown"]
    assert answers_of(document, "1.1.0") == [PANICS]


def test_releases_between_tested_releases_have_a_verdict() -> None:
    document = {**plain(), "cdiVersion": "0.6.0"}
    assert answers_of(document, "0.5.3", "0.5.4", "0.6.0", "0.6.1", "0.7.1", "0.8.0", "1.0.0") == [
        *(REJECTS, REJECTS),
        *[ACCEPTS] * 5,
    ]


def test_a_slash_as_closid_is_accepted_from_1_1_0() -> None:
    document = {**with_edits(intelRdt={"closID": "/"}), "cdiVersion": "0.7.0"}
    assert answers_of(document, "0.7.2", "1.0.1", "1.1.0") == [REJECTS, REJECTS, ACCEPTS]


def test_every_verdict_except_accept_has_a_reason() -> None:
    for name, data, _ in observed():
        for judgement in loader_verdicts(data, yaml=False).values():
            assert bool(judgement.reason) is (judgement.verdict != ACCEPTS), name


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({**plain(), "x": 1}, "unknown field 'x'"),
        ({**plain(), "cdiVersion": "9"}, 'unknown cdiVersion "9"'),
        ({**plain(), "cdiVersion": "0.3.0"}, "cdiVersion 0.3.0 is too low: the content needs 0.5.0"),
        ({**plain(), "kind": "v/gpu"}, '"v" in kind is one letter'),
        (with_node(major=True), "a boolean instead of an integer from -9223372036854775808"),
        (b"{", "not YAML: "),
        (b"\xff", "the bytes are not UTF-8"),
    ],
)
def test_a_reason_names_the_problem(document: object, reason: str) -> None:
    data = document if isinstance(document, bytes) else to_bytes(document)
    assert loader_verdicts(data, yaml=False, versions=["1.1.0"])["1.1.0"].reason.startswith(reason)


def test_the_verdict_of_untested_releases_is_unknown() -> None:
    versions = ("0.5.0", "0.5.1", "0.6.3", "1.1.1", "1.2.0", "9.9.9", "1.0", "x", "", "1.0.0-rc1", "v1.0.1")
    assert set(answers_of(plain(), *versions)) == {"unknown"}


def test_a_release_before_all_tested_releases_rejects_later_spec_versions() -> None:
    assert answers_of({**plain(), "cdiVersion": "0.5.0"}, "0.3.2", "0.4.0", "0.5.0") == [
        *("reject", "reject", "unknown")
    ]
    assert answers_of({**plain(), "cdiVersion": "0.4.0"}, "0.3.2", "0.4.0") == ["reject", "unknown"]
    odd: list[object] = [{"CdiVersion": "0.4.0", **plain()}, {"cdiVersion": ["0.5.0"]}, []]
    assert all(answers_of(document, "0.4.0") == ["unknown"] for document in odd)


def test_the_verdict_on_a_file_above_the_size_limit_is_unknown() -> None:
    assert set(answers_of(b" " * (MAX_SIZE + 1))) == {"unknown"}


def test_the_verdict_on_nested_aliases_is_unknown() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    assert set(answers_of("\n".join(lines).encode())) == {"unknown"}


def test_the_default_versions_contain_the_documented_versions() -> None:
    assert {"0.5.2", "0.6.2", "0.7.2", "1.0.1", "1.1.0"} <= set(DEFAULT_RELEASES)
    assert list(verdicts(to_bytes(rich()), yaml=False)) == list(DEFAULT_RELEASES)


@pytest.mark.wall_clock
def test_a_document_of_a_thousand_devices_is_checked_within_a_second() -> None:
    devices = [
        {"name": str(n), "containerEdits": with_node()["devices"][0]["containerEdits"]} for n in range(1000)
    ]
    start = process_time()
    assert answers_of({**plain(), "devices": devices}) == [ACCEPTS] * len(DEFAULT_RELEASES)
    assert process_time() - start < 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("~", None),
        ("nUll", "nUll"),
        ("on", True),
        ("No", False),
        ("010", 8),
        ("08", 8.0),
        ("0o17", 15),
        ("0b101", 5),
        ("-0x1f", -31),
        ("+5", 5),
        ("1_000", 1000),
        ("18446744073709551615", 2**64 - 1),
        ("18446744073709551616", float(2**64)),
        ("+18446744073709551615", float(2**64)),
        ("-9223372036854775808", -(2**63)),
        ("1e3", 1000.0),
        ("1e999", "1e999"),
        (".5", 0.5),
        ("._5", "._5"),
        (".", "."),
        ("-", "-"),
        ("1.2.3", "1.2.3"),
        ("12:30", "12:30"),
        ("2001-01-01", "2001-01-01"),
        (".inf", float("inf")),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_a_plain_scalar_has_the_type_of_go_yaml(text: str, value: object) -> None:
    assert (type(resolve(text)), resolve(text)) == (type(value), value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (5, "5"),
        (0.5, "0.5"),
        (1.0, "1"),
        (-0.0, "-0"),
        (100000.0, "100000"),
        (1e6, "1e+06"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (0.1, "0.1"),
        (1 / 3, None),
        (16777217.0, None),
        (1234567.0, None),
        (float("-inf"), None),
        (float("nan"), None),
        ("x", "x"),
        (None, None),
        ([], None),
    ],
)
def test_a_number_becomes_the_same_text_as_in_go(value: object, text: str | None) -> None:
    assert as_text(value) == text
