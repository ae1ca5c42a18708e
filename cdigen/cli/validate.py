"""``cdigen validate``: check spec files as the runtimes' loaders do, and print all that is wrong."""

from __future__ import annotations

import os
import sys

from cdigen.cdi.library import DEFAULT_RELEASES, RELEASES
from cdigen.cdi.loaders.emulation import PANIC, REJECT, UNKNOWN, LoaderVerdict, loader_verdicts
from cdigen.cdi.rules.mount_conflicts import MountConflicts
from cdigen.cdi.rules.rulebook import finding
from cdigen.cdi.validation import validate_content
from cdigen.cli import options, report
from cdigen.cli.specinput import SpecInput, read_inputs
from cdigen.host.root import shown
from cdigen.model.errors import ConfigError
from cdigen.model.findings import Finding, errors
from cdigen.pipeline.fit import unknown_releases
from cdigen.runtimes import acceptance, targets
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from cdigen.host.root import Root

EXAMPLES = """\
  cdigen validate /etc/cdi /var/run/cdi               every file that a runtime loads from there
  cdigen validate --host /var/run/cdi/nvidia.com-gpu.json
                                                      and does the host have what it names?
  cdigen generate | cdigen validate -                 from standard input
  cdigen validate --target podman-4.9 nvidia.yaml     does that release load it?
  cdigen validate --json --loader 0.8.0 nvidia.yaml   with what each CDI library version would do
"""

# A key may be as long as a file, and is part of the path.
MAX_PATH = 4096

EXIT_INVALID = 1
EXIT_UNREADABLE = 5

# What the libraries do, in words for runtimes.
VERDICT_LABELS = {REJECT: "refused by", PANIC: "crashes"}


@frozen
class RequestedLibrary:
    """A CDI library that the user named: by itself, or as that of a runtime's release."""

    name: str
    library: str


@frozen
class ValidatedFile:
    """What is to be said of one file; ``judged`` maps CDI library versions to what they would do."""

    file: str
    findings: tuple[Finding, ...]
    judged: dict[str, LoaderVerdict]
    was_read: bool = True

    @property
    def is_valid(self) -> bool:
        """Whether no finding is an error."""
        return not errors(self.findings)


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument(
        "files",
        metavar="FILE",
        nargs="+",
        type=options.not_empty,
        help="a spec file, or a folder of .json and .yaml files; '-' is standard input",
    )
    parser.add_argument("--host", action="store_true", help="also hold it against this host (see --root)")
    parser.add_argument(
        "--target",
        metavar="RUNTIME",
        action="append",
        default=[],
        help="fail unless this runtime loads it: podman-4.9, containerd-1.7.24; may be repeated",
    )
    parser.add_argument(
        "--loader",
        metavar="VERSION",
        action="append",
        default=[],
        help="fail unless this version of the CDI library loads it: 0.8.0, main; may be repeated",
    )
    parser.add_argument(
        "--schema", action="store_true", help="ask the JSON Schema about specs with thousands of mounts too"
    )
    options.add_root_options(parser)
    options.add_output_options(parser)


def run(arguments: Namespace) -> int:
    """Run the command; returns the exit code or raises a CdigenError."""
    _refuse_odd_combinations(arguments)
    asked = _asked(arguments)
    host = options.host_and_settings(arguments)[0] if arguments.host else None
    mount_conflicts = MountConflicts(host)
    rows = []
    codes: set[int] = set()
    empty: list[str] = []
    for file in read_inputs(arguments.files):
        if file.problem and not file.rule:
            empty.append(f"{shown(file.name)} {file.problem}")
            continue
        verdict = _judge(file, asked, host, mount_conflicts, always_schema=arguments.schema)
        codes.add(_code(verdict))
        if arguments.json:
            rows.append(_row(verdict, asked))
        else:
            report.write(sys.stdout, _text(verdict, arguments))
    if not codes:
        raise ConfigError(
            f"nothing was checked: {'; '.join(empty)}",
            hint="runtimes load nothing from there; name a spec file, or a folder that holds one",
            kind="no-files",
        )
    for text in empty:
        report.print_note(text, arguments)
    if arguments.json:
        report.print_json(rows)
    return max(codes)


def _refuse_odd_combinations(arguments: Namespace) -> None:
    for option, is_given in (
        ("--root", arguments.root != "/"),
        ("--config", arguments.config is not None),
    ):
        if is_given and not arguments.host:
            raise ConfigError(
                f"{option} has no meaning without --host", hint="FILE is always a path of this machine"
            )


def _code(verdict: ValidatedFile) -> int:
    if not verdict.was_read:
        return EXIT_UNREADABLE
    return 0 if verdict.is_valid else EXIT_INVALID


def _asked(arguments: Namespace) -> tuple[RequestedLibrary, ...]:
    """Return the libraries that the user named; raises ConfigError for what is not a version."""
    asked = []
    for name in arguments.target:
        target = targets.parse(name)
        report.print_findings(unknown_releases(target), arguments)
        asked.append(
            RequestedLibrary(name=f"{target.name} (CDI library {target.library})", library=target.library)
        )
    for version in arguments.loader:
        library = version.removeprefix("v")
        parts = library.split(".")
        if library != "main" and not (len(parts) == 3 and all(p.isascii() and p.isdigit() for p in parts)):
            raise ConfigError(
                f"--loader {shown(version)!r} is not a version of the CDI library",
                hint=f"known are {', '.join(RELEASES)} and main",
            )
        asked.append(RequestedLibrary(name=f"CDI library {library}", library=library))
    for one in asked:
        if one.library not in (*RELEASES, "main"):
            report.print_note(
                f"{one.name} was never observed, so nothing is said of it; known are {RELEASES[0]} to"
                f" {RELEASES[-1]} and main",
                arguments,
            )
    return tuple(asked)


def _judge(
    file: SpecInput,
    asked: tuple[RequestedLibrary, ...],
    host: Root | None,
    mount_conflicts: MountConflicts,
    *,
    always_schema: bool,
) -> ValidatedFile:
    versions = dict.fromkeys((*DEFAULT_RELEASES, *(one.library for one in asked), *acceptance.LIBRARIES))
    if file.rule:
        problem = Finding(severity="error", rule=file.rule, path="$", message=file.problem)
        unknown = dict.fromkeys(versions, LoaderVerdict(verdict=UNKNOWN, reason=file.problem))
        return ValidatedFile(
            file=file.name, findings=(problem,), judged=unknown, was_read=file.rule != "unreadable"
        )
    of_file = validate_content(
        file.data,
        yaml=_is_yaml(file.name),
        host=host,
        mount_conflicts=mount_conflicts,
        always_schema=always_schema,
    )
    judged = loader_verdicts(file.data, yaml=of_file.is_yaml, versions=versions, parsed=of_file.parsed)
    refused = tuple(found for one in asked for found in _refusal(one, judged[one.library]))
    return ValidatedFile(file=file.name, findings=(*of_file.findings, *refused), judged=judged)


def _refusal(one: RequestedLibrary, judgement: LoaderVerdict) -> tuple[Finding, ...]:
    if judgement.verdict == REJECT:
        return (finding("loader-refuses", "$", f"{one.name} refuses the file: {judgement.reason}"),)
    if judgement.verdict == PANIC:
        return (finding("loader-crashes", "$", f"{one.name} crashes on the file: {judgement.reason}"),)
    return ()


def _is_yaml(file: str) -> bool | None:
    """Tell by its name whether FILE is YAML; None where the name does not say."""
    if file.endswith((".yaml", ".yml")):
        return True
    return False if file.endswith(".json") else None


def _row(verdict: ValidatedFile, asked: tuple[RequestedLibrary, ...]) -> dict[str, object]:
    shown_versions = dict.fromkeys((*DEFAULT_RELEASES, *(one.library for one in asked)))
    return {
        "file": verdict.file,
        "valid": verdict.is_valid,
        "findings": [_finding_row(each) for each in verdict.findings],
        "loaders": {version: verdict.judged[version].verdict for version in shown_versions},
        "runtimes": acceptance.rows(verdict.judged),
    }


def _finding_row(found: Finding) -> dict[str, object]:
    row: dict[str, object] = {
        "severity": found.severity,
        "rule": found.rule,
        "path": found.path if len(found.path) <= MAX_PATH else f"{found.path[:MAX_PATH]}...",
        "message": found.message,
    }
    if found.place:
        row["line"], row["column"] = found.place
    return row


def _text(verdict: ValidatedFile, arguments: Namespace) -> str:
    name = "standard input" if verdict.file == "-" else shown(verdict.file)
    lines = [f"{name}: {'good' if verdict.is_valid else 'not good'}"]
    lines += [
        f"  {shown(_line(found))}"
        for found in verdict.findings
        if found.severity == "error" or not arguments.quiet
    ]
    if os.path.splitext(verdict.file)[1] in (".yml", ".JSON", ".YAML", ".YML"):
        lines.append("  no runtime loads a file of this name: it must end in .json or .yaml")
    for group in acceptance.groups(verdict.judged):
        who = "every runtime" if group.is_all else ", ".join(group.runtimes)
        lines.append(f"  {VERDICT_LABELS[group.verdict]} {who}: {shown(group.reason)}")
    return "\n".join(lines) + "\n"


def _line(found: Finding) -> str:
    """Return FOUND as one line that names its place in the file."""
    line = (
        found.line() if len(found.path) <= MAX_PATH else f"{found.severity}: {found.message} [{found.rule}]"
    )
    if not found.place:
        return line
    where = f"line {found.place[0]}, column {found.place[1]}"
    severity, _, rest = line.partition(": ")
    return line if where in rest else f"{severity}: {where}: {rest}"
