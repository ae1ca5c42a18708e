"""``cdigen validate``: read spec files as the runtimes' loaders do, and say all that is wrong."""

from __future__ import annotations

import sys
from errno import EFBIG

from cdigen.cli import options, report
from cdigen.cli.inputs import read_bounded
from cdigen.host.root import reason, shown
from cdigen.model.findings import Finding, errors
from cdigen.spec.hostcheck import check_host
from cdigen.spec.loaders import DEFAULT_VERSIONS, verdicts
from cdigen.spec.parse import MAX_SIZE, parse_document
from cdigen.spec.rules import check
from cdigen.spec.schema import check_schema
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from cdigen.host.root import Root

EXAMPLES = """\
  cdigen validate /etc/cdi/*.json /var/run/cdi/*      every file of this host
  cdigen validate --host /var/run/cdi/nvidia.com-gpu.json
                                                      and does the host have what it names?
  cdigen generate | cdigen validate -                 from standard input
  cdigen validate --json nvidia.yaml                  with what each CDI library version would do
"""

EXIT_WRONG = 1
EXIT_UNREADABLE = 5


@frozen
class Verdict:
    """What is to be said of one file; ``loaders`` maps CDI library versions to what they would do."""

    file: str
    findings: tuple[Finding, ...]
    loaders: dict[str, str]
    was_read: bool = True

    @property
    def is_valid(self) -> bool:
        """Whether no finding is an error."""
        return not errors(self.findings)


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("files", metavar="FILE", nargs="+", help="a spec file; '-' is standard input")
    parser.add_argument("--host", action="store_true", help="also hold it against this host (see --root)")
    options.add_root_options(parser)
    options.add_output_options(parser)


def run(arguments: Namespace) -> int:
    """Run the command; returns the exit code or raises a CdigenError."""
    host, _ = options.host_and_settings(arguments)
    judged = [_judge(file, host if arguments.host else None) for file in arguments.files]
    if arguments.json:
        report.print_json([_row(verdict) for verdict in judged])
    else:
        for verdict in judged:
            report.write(sys.stdout, _text(verdict, arguments))
    if not all(verdict.was_read for verdict in judged):
        return EXIT_UNREADABLE
    return 0 if all(verdict.is_valid for verdict in judged) else EXIT_WRONG


def _judge(file: str, host: Root | None) -> Verdict:
    try:
        data = read_bounded(file, limit=MAX_SIZE)
    except OSError as error:
        if error.errno == EFBIG:
            return _unread(
                file, "too-large", f"is larger than {MAX_SIZE} bytes and is not judged", was_read=True
            )
        return _unread(file, "unreadable", f"cannot be read: {reason(error)}", was_read=False)
    yaml = _is_yaml(file)
    parsed = parse_document(data, yaml=yaml)
    findings = parsed.findings
    if parsed.document is not None:
        findings = (*findings, *check(parsed.document))
        if not errors(findings):
            # The rules are at least as strict; where they differ, the schema has the last word.
            findings = (*findings, *check_schema(parsed.document))
        if host is not None and not errors(findings):
            findings = (*findings, *check_host(parsed.document, host))
    if yaml is None:
        yaml = not data.lstrip().startswith(b"{")
    return Verdict(file=file, findings=findings, loaders=verdicts(data, yaml=yaml))


def _is_yaml(file: str) -> bool | None:
    """Tell by its name whether FILE is YAML; None where the name does not say."""
    if file.endswith((".yaml", ".yml")):
        return True
    return False if file.endswith(".json") else None


def _unread(file: str, rule: str, message: str, *, was_read: bool) -> Verdict:
    finding = Finding(severity="error", rule=rule, path="$", message=message)
    unknown = dict.fromkeys(DEFAULT_VERSIONS, "unknown")
    return Verdict(file=file, findings=(finding,), loaders=unknown, was_read=was_read)


def _row(verdict: Verdict) -> dict[str, object]:
    return {
        "file": verdict.file,
        "valid": verdict.is_valid,
        "findings": [
            {"severity": each.severity, "rule": each.rule, "path": each.path, "message": each.message}
            for each in verdict.findings
        ],
        "loaders": verdict.loaders,
    }


def _text(verdict: Verdict, arguments: Namespace) -> str:
    name = "standard input" if verdict.file == "-" else shown(verdict.file)
    lines = [f"{name}: {'good' if verdict.is_valid else 'not good'}"]
    lines.extend(
        f"  {shown(finding.line())}"
        for finding in verdict.findings
        if finding.severity == "error" or not arguments.quiet
    )
    refusing = [version for version, answer in verdict.loaders.items() if answer in {"reject", "panic"}]
    if refusing and len(refusing) < len(verdict.loaders):
        lines.append(f"  refused by the CDI libraries {', '.join(refusing)}")
    return "\n".join(lines) + "\n"
