"""The documentation names everything that the code names, and nothing that does not exist.

The tests in tests/docs check links, commands in code blocks, and sizes.
"""

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from pkgutil import resolve_name
from textwrap import dedent
from typing import Any

import pytest
from support import source_names
from support.paths import REPOSITORY
from support.source_names import KEBAB, syntax_tree

from cdigen.cli.main import EXIT_DEFECT, UnprintedError
from cdigen.config import read

# acme is the vendor that docs/contributing/vendor-packages.md adds.
NAMES = ("nvidia", "amd", "intel", "acme")

DOCUMENTS = sorted(
    path.relative_to(REPOSITORY).as_posix()
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md", ".github/**/*.md", ".github/**/*.yml")
    for path in REPOSITORY.glob(pattern)
)
SECTIONS = sorted(
    path.relative_to(REPOSITORY).as_posix() for path in REPOSITORY.glob("etc/help/sections/*.roff")
)


@cache
def text_of(document: str) -> str:
    return (REPOSITORY / document).read_text(encoding="utf-8")


def everywhere(*documents: str) -> str:
    return "\n".join(map(text_of, documents))


def first_column(text: str) -> set[str]:
    """Return the names in backticks in the first column of the tables in TEXT."""
    rows = re.findall(r"^\| (`[^|]*`) \|", text, flags=re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


# Rules and kinds of errors.

NAMES_RULE = re.compile(r'(?:rule=|_\w+\(\s*(?:"(?:error|warning|info)",\s*)?)"([a-z0-9]+(?:-[a-z0-9]+)+)"')
# Names that are written like rules but never printed: words of hooks and packages, and internal names of
# findings that doctor and configure print in other words.
NO_RULES = {
    "cri-o", "cri-disabled", "config-missing", "config-passed-over", "config-syntax", "config-twice",
    "config-too-long", "config-type", "config-unknown", "config-unreadable", "config-version",
    "config-version-order", "no-specs",
    "claimed-by-other", "not-a-name", "unknown-device", "unknown-kind",
}  # fmt: skip


def test_every_rule_outside_the_rulebook_is_documented_and_every_documented_rule_exists() -> None:
    text = text_of("docs/reference/findings.md")
    documented = first_column(text)
    # The start-up hook has no findings: docs/reference/hook.md describes its messages.
    sources = [
        path
        for path in (REPOSITORY / "cdigen").rglob("*.py")
        if path.name != "rulebook.py" and path.parent.name != "hook"
    ]
    code = "".join(path.read_text() for path in sources)
    named = {name for name in source_names.passed_as("rule") if KEBAB.fullmatch(name)}
    checks = first_column(text_of("docs/reference/checks.md"))
    kinds = set(source_names.error_kinds())
    assert {*NAMES_RULE.findall(code), *named} - NO_RULES - checks - kinds - documented == set()
    outside = first_column(text.split("\n## Against a host\n")[1])
    assert {rule for rule in outside if f'"{rule}"' not in code} == set()


def test_every_kind_of_error_is_documented_with_its_exit_code() -> None:
    part = text_of("docs/reference/json.md").partition("\n## Kinds of errors\n")[2]
    documented = {
        kind: {int(code) for code in codes.split(", ")}
        for kind, codes in re.findall(r"^\| `([a-z-]+)` \| ([0-9, ]+) \|", part, flags=re.MULTILINE)
    }
    known = source_names.error_kinds()
    # Only the entry point raises these two errors.
    assert (documented.pop("internal"), known.pop("internal")) == ({EXIT_DEFECT}, {1})
    assert documented.pop(UnprintedError.default_kind) == {UnprintedError.exit_code}
    assert documented == known


# Commands and options.

# Options of other programs that a document names without the program.
FOREIGN_OPTIONS = {
    "--root-dir", "--container-runtime-endpoint", "--bound-object-kind", "--bound-object-name",
    "--group-add", "--gpus", "--runtime", "--rootfs", "--config-file", "--require-hashes", "--only-binary",
    "--policy-config-file", "--version", "--tree", "--rounds", "--option", "--privileged", "--rm", "--now",
    "--nv", "--nvccli", "--oci", "--rocm",
}  # fmt: skip
# A command of cdigen: at the start of a line, after a prompt, sudo or an operator of the shell.
COMMAND = re.compile(r"(?:^|[|;&(]\s?|\$ |sudo |# )cdigen ([a-z][a-z-]*)([^|;&)]*)")


def spans(text: str) -> Iterator[str]:
    """Yield the code in TEXT: inline code, and each line of code blocks."""
    without = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    yield from re.findall(r"`([^`\n]+)`", without)
    for block in re.findall(r"```[a-z]*\n(.*?)```", text, flags=re.DOTALL):
        yield from block.splitlines()
    yield from (line[4:] for line in without.splitlines() if line.startswith("    "))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_commands_and_options_that_a_document_names_exist(document: str) -> None:
    known = source_names.options() | {"help": set[str]()}
    every = set().union(*known.values())
    for span in spans(text_of(document)):
        for command, rest in COMMAND.findall(span):
            named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", rest.partition("  ")[0]))
            assert command in known, span
            assert named <= known[command], span
        if span.startswith("--"):
            alone = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", span))
            assert alone <= every | FOREIGN_OPTIONS, span


@pytest.mark.parametrize("section", SECTIONS)
def test_options_in_the_prose_of_a_man_page_exist(section: str) -> None:
    known = set().union(*source_names.options().values())
    named = re.findall(r"(?<![\w-])\\-\\-[a-z](?:[a-z]|\\-)*", text_of(section))
    assert {name.replace("\\", "") for name in named} - known - FOREIGN_OPTIONS == set()


# Configuration.


def keys(
    schema: dict[str, Any], whole: dict[str, Any], path: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    """Yield the path of every key that SCHEMA permits."""
    if "$ref" in schema:
        schema = whole["$defs"][schema["$ref"].rpartition("/")[2]]
    for key, value in schema.get("properties", {}).items():
        yield (*path, key)
        yield from keys(value, whole, (*path, key))
    for part in (
        schema.get("items"),
        *(one for of in ("anyOf", "oneOf", "allOf") for one in schema.get(of, ())),
    ):
        if isinstance(part, dict):
            yield from keys(part, whole, path)


def test_every_key_of_the_configuration_is_documented_at_every_depth() -> None:
    schema = json.loads(text_of("schemas/config.schema.json"))
    named = {
        word
        for span in spans(text_of("docs/reference/configuration.md"))
        for word in re.findall(r"[a-z0-9_]+", span)
    }
    missing = {".".join(path) for path in keys(schema, schema) if path[-1] not in named}
    assert missing == set()
    assert len({path for path in keys(schema, schema) if len(path) > 1}) > 30


def test_every_key_that_the_documentation_of_the_configuration_lists_exists() -> None:
    schema = json.loads(text_of("schemas/config.schema.json"))
    known = {name for path in keys(schema, schema) for name in (path[-1], ".".join(path))}
    tables = re.findall(
        r"^\| key[^|]*\|.*\n\|[-|]+\n((?:\|.*\n)+)",
        text_of("docs/reference/configuration.md"),
        flags=re.MULTILINE,
    )
    listed = first_column("\n".join(tables))
    assert listed
    assert listed - known == set()


def examples_of_the_configuration() -> Iterator[tuple[str, str]]:
    """Yield document and text of each YAML block that has only keys of the configuration."""
    known = set(json.loads(text_of("schemas/config.schema.json"))["properties"])
    for document in DOCUMENTS:
        for block in re.findall(
            r"^ *```yaml\n(.*?)^ *```", text_of(document), flags=re.DOTALL | re.MULTILINE
        ):
            text = dedent(block)
            tops = re.findall(r"^([^\s#:][^:\n]*)", text, flags=re.MULTILINE)
            if set(tops) <= known:
                yield document, text


def test_every_example_of_the_configuration_is_valid() -> None:
    found = [(document, read(text.encode(), file=document, vendors=NAMES)[1])
             for document, text in examples_of_the_configuration()]  # fmt: skip
    assert len(found) > 10
    assert [(document, wrong) for document, wrong in found if wrong] == []


# Metrics and log events.


def metrics() -> set[str]:
    """Return the names of all metrics as they are scraped, without the suffixes of histograms."""
    code = "\n".join(path.read_text() for path in source_names.trees())
    counters = set(re.findall(r'[Cc]ounter(?:MetricFamily)?\(\s*"(cdigen_\w+)"', code))
    every = set(re.findall(r'"(cdigen_[a-z]\w+)"', code))
    return {f"{name}_total" if name in counters else name for name in every}


def test_every_metric_is_documented_and_every_documented_metric_exists() -> None:
    names = first_column(everywhere(*(name for name in DOCUMENTS if name.startswith("docs/"))))
    assert {name for name in names if name.startswith("cdigen_")} == metrics()


def test_metrics_in_documents_alerts_and_dashboards_exist() -> None:
    monitoring = [path for path in (REPOSITORY / "examples/monitoring").iterdir() if path.is_file()]
    text = "\n".join((everywhere(*DOCUMENTS), *(path.read_text() for path in monitoring)))
    named = set(re.findall(r"\bcdigen_(?:nri_)?[a-z]+_[a-z_]*[a-z]\b", text))
    bare = {re.sub(r"_(?:bucket|sum|count)$", "", name) for name in named}
    assert bare - metrics() == set()


@pytest.mark.parametrize(
    ("document", "places"),
    [
        ("docs/reference/log-events.md", ("daemon", "service", "service/process", "cli/services/run.py")),
        (
            "docs/reference/nri.md",
            ("nri", "cli/services/nri.py", "cli/services/service_sources.py", "service/runner.py"),
        ),
    ],
)
def test_every_event_of_the_log_is_documented(document: str, places: tuple[str, ...]) -> None:
    table = text_of(document).partition("\n| `event` |")[2].partition("\n\n")[0]
    # An event of the logger itself, and events whose name is a value: the outcome of a container, or the
    # state of the run directory.
    values = {"log_dropped", "served", "nothing", "status"}
    assert source_names.events(*places) - values == first_column(table) - values


# Variables, files, headings, targets.


def test_every_environment_variable_is_documented_and_every_documented_one_is_used() -> None:
    text = everywhere(*DOCUMENTS, *SECTIONS)
    assert {name for name in source_names.variables() if name not in text} == set()
    used = "\n".join(
        path.read_text(errors="replace")
        for top in ("cdigen", "etc", "tests", "Makefile", ".ci")
        for path in ([REPOSITORY / top] if (REPOSITORY / top).is_file() else (REPOSITORY / top).rglob("*"))
        if path.is_file() and path.suffix != ".pyc"
    )
    assert {name for name in re.findall(r"\bCDIGEN_[A-Z0-9_]+", text) if name not in used} == set()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_file_that_a_document_names_exists(document: str) -> None:
    named = set(re.findall(r"`((?:docs|examples|etc|schemas|tests|cdigen)/[\w./-]*\w)`", text_of(document)))
    assert {path for path in named if not (REPOSITORY / path).exists()} == set()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_targets_of_make_that_a_document_names_exist(document: str) -> None:
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", text_of("Makefile"), flags=re.MULTILINE))
    named = {
        target
        for span in spans(text_of(document))
        for target in re.findall(r"^(?:sudo )?make ([a-z][a-z0-9-]*)", span)
    }
    assert named - targets == set()


# Modules.


def exists(name: str) -> bool:
    """Return whether NAME (``package.module``, ``package.module.function``) is in cdigen."""
    try:
        resolve_name(f"cdigen.{name}")
    except (ImportError, AttributeError):
        return False
    return True


def test_every_module_in_the_architecture_page_exists() -> None:
    packages = {path.parent.name for path in (REPOSITORY / "cdigen").glob("*/__init__.py")}
    text = text_of("docs/contributing/architecture.md")
    named = {span for span in spans(text) if re.fullmatch(r"[a-z_]+(?:\.[a-zA-Z_]+)+", span)}
    modules = {name for name in named if name.partition(".")[0] in packages}
    files = set(re.findall(r"(?<![\w/])((?:cdigen|tests|schemas|etc|docs|examples)/[\w./-]+\w)", text))
    assert {name for name in modules if not exists(name)} == set()
    assert {name for name in files if not (REPOSITORY / name).exists()} == set()
    assert len(modules) > 30


def test_the_page_of_helpers_lists_each_helper_of_the_tests() -> None:
    folder = REPOSITORY / "tests/support"
    helpers = {path.relative_to(folder).as_posix() for path in folder.rglob("*.py")} - {"__init__.py"}
    text = (folder / "README.md").read_text()
    assert set(re.findall(r"^\| `([\w/]+\.py)` \|", text, flags=re.MULTILINE)) == helpers


def test_code_that_tests_share_is_in_the_package_support() -> None:
    tests = REPOSITORY / "tests"
    programs = ("bench/", "real_gpu/", "support/", "compare_lock.py", "e2e/page_pictures.py")
    others = {path.relative_to(tests).as_posix() for path in tests.rglob("*.py")}
    assert {name for name in others if not name.startswith(programs) and "/test_" not in f"/{name}"} == {
        name for name in others if name.endswith("conftest.py")
    }
    imports = {
        f"{path.name}: {node.module}"
        for path in tests.rglob("*.py")
        for node in syntax_tree(path.read_text()).body
        if isinstance(node, ast.ImportFrom) and str(node.module).rpartition(".")[2].startswith("test_")
    }
    assert imports == set()
