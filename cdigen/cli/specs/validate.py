"""The command ``cdigen validate``: check spec files as the runtimes do, and print all problems."""

from __future__ import annotations

import os
import sys

from cdigen.cdi.library import DEFAULT_RELEASES, RELEASES, UNRELEASED
from cdigen.cdi.loaders.emulation import PANIC, REJECT, UNKNOWN, LoaderVerdict, loader_verdicts
from cdigen.cdi.rules.mount_conflicts import MountConflicts
from cdigen.cdi.rules.rulebook import finding
from cdigen.cdi.validation import validate_content
from cdigen.cli.shared import options, report
from cdigen.cli.shared.option_table import add, not_empty
from cdigen.cli.specs.specinput import SpecInput, read_inputs
from cdigen.host.root import shown
from cdigen.model.errors import ConfigError
from cdigen.model.findings import Finding, errors
from cdigen.runtimes import acceptance, targets
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from cdigen.host.root import Root

EXAMPLES = """\
  cdigen validate /etc/cdi /var/run/cdi               check every file that a runtime loads
  cdigen validate --host /var/run/cdi/nvidia.com-gpu.json
                                                      also check its paths on this host
  cdigen generate | cdigen validate -                 check standard input
  cdigen validate --target podman-4.9 nvidia.yaml     check whether podman 4.9 loads the file
  cdigen validate --json --loader 0.8.0 nvidia.yaml   print JSON, with results per CDI library
"""

# The maximum number of characters in the path of a finding. A path contains keys. A key can be as long as the
# file.
MAX_PATH = 4096

UNKNOWN_RULE = "loader-unknown"

EXIT_INVALID = 1
EXIT_UNREADABLE = 5

# The verdicts of the libraries, with the labels that precede the names of runtimes.
VERDICT_LABELS = {REJECT: "rejected by", PANIC: "crashes"}


@frozen
class RequestedLibrary:
    """The CDI library of a --loader option, or of the runtime release of a --target option.

    ``doubt`` is the reason why the behaviour of the release is unknown.
    """

    name: str
    library: str
    doubt: str = ""


@frozen
class ValidatedFile:
    """The result for one file; ``judged`` has the verdict of each version of the CDI library."""

    file: str
    findings: tuple[Finding, ...]
    judged: dict[str, LoaderVerdict]
    was_read: bool = True

    @property
    def is_valid(self) -> bool:
        """Whether no finding is an error."""
        return not errors(self.findings)

    @property
    def is_unknown(self) -> bool:
        """Whether the file is valid, but the verdict of a requested library is unknown."""
        return self.is_valid and any(found.rule == UNKNOWN_RULE for found in self.findings)


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument(
        "files",
        metavar="FILE",
        nargs="+",
        type=not_empty,
        help="a spec file, or a folder of .json and .yaml files; '-' is standard input",
    )
    add(parser, "--host")
    text = (
        "check whether this runtime release loads FILE, such as podman-4.9 or containerd-1.7.24; if not, or "
        "if this is unknown, exit with 1; repeatable"
    )
    add(parser, "--target", default=[], help=text)
    add(parser, "--loader", "--schema")
    options.add_root_options(parser)


def run(arguments: Namespace) -> int:
    """Run the command; return the exit code or raise a CdigenError."""
    _refuse_odd_combinations(arguments)
    requested = _requested(arguments)
    host = options.host_and_settings(arguments)[0] if arguments.host else None
    mount_conflicts = MountConflicts(host)
    rows = []
    codes: set[int] = set()
    empty: list[str] = []
    for file in read_inputs(arguments.files):
        if file.problem and not file.rule:
            empty.append(f"{shown(file.name)} {file.problem}")
            continue
        validated = _validate(file, requested, host, mount_conflicts, always_schema=arguments.schema)
        codes.add(_code(validated))
        if arguments.json:
            rows.append(_row(validated, requested))
        else:
            report.write(sys.stdout, _text(validated, arguments))
    if not codes:
        raise ConfigError(
            f"nothing was checked: {'; '.join(empty)}",
            hint="name a spec file, or a folder with spec files",
            kind="no-files",
        )
    for text in empty:
        report.print_note(text, arguments)
    if arguments.json:
        report.print_json(rows)
    return max(codes)


def _refuse_odd_combinations(arguments: Namespace) -> None:
    for option, is_used in (
        ("--root", arguments.root != "/"),
        ("--config", arguments.config is not None),
    ):
        if is_used and not arguments.host:
            raise ConfigError(
                f"{option} has no effect without --host", hint="FILE is always a path of this machine"
            )


def _code(file: ValidatedFile) -> int:
    if not file.was_read:
        return EXIT_UNREADABLE
    return 0 if file.is_valid and not file.is_unknown else EXIT_INVALID


def _requested(arguments: Namespace) -> tuple[RequestedLibrary, ...]:
    """Return the libraries of --target and --loader; raise ConfigError for an invalid version."""
    requested = []
    for name in arguments.target:
        target = targets.parse(name)
        library = "" if target.doubts else f" (CDI library {target.library})"
        requested.append(
            RequestedLibrary(
                name=f"{target.name}{library}", library=target.library, doubt="; ".join(target.doubts)
            )
        )
    for version in arguments.loader:
        library = version.removeprefix("v")
        parts = library.split(".")
        is_release = len(parts) == 3 and all(part.isascii() and part.isdigit() for part in parts)
        if library not in UNRELEASED and not is_release:
            raise ConfigError(
                f"--loader {shown(version)!r} is not a version of the CDI library",
                hint=f"known versions: {', '.join((*RELEASES, *UNRELEASED))}",
            )
        requested.append(RequestedLibrary(name=f"CDI library {library}", library=library))
    return tuple(requested)


def _validate(
    file: SpecInput,
    requested: tuple[RequestedLibrary, ...],
    host: Root | None,
    mount_conflicts: MountConflicts,
    *,
    always_schema: bool,
) -> ValidatedFile:
    versions = dict.fromkeys((*DEFAULT_RELEASES, *(one.library for one in requested), *acceptance.LIBRARIES))
    if file.rule:
        problem = Finding(severity="error", rule=file.rule, path="$", message=file.problem)
        unknown = dict.fromkeys(versions, LoaderVerdict(verdict=UNKNOWN, reason=file.problem))
        return ValidatedFile(
            file=file.name, findings=(problem,), judged=unknown, was_read=file.rule != "unreadable"
        )
    checked = validate_content(
        file.data,
        yaml=_is_yaml(file.name),
        host=host,
        mount_conflicts=mount_conflicts,
        always_schema=always_schema,
    )
    judged = loader_verdicts(file.data, yaml=checked.is_yaml, versions=versions, parsed=checked.parsed)
    rejected = tuple(found for one in requested for found in _loader_findings(one, judged[one.library]))
    return ValidatedFile(file=file.name, findings=(*checked.findings, *rejected), judged=judged)


def _loader_findings(one: RequestedLibrary, judgement: LoaderVerdict) -> tuple[Finding, ...]:
    if one.doubt or judgement.verdict == UNKNOWN:
        text = f"{one.name}: unknown whether this release loads the file: {one.doubt or judgement.reason}"
        return (finding(UNKNOWN_RULE, "$", text, "start a container with a device of the file"),)
    if judgement.verdict == REJECT:
        return (finding("loader-refuses", "$", f"{one.name} rejects the file: {judgement.reason}"),)
    if judgement.verdict == PANIC:
        return (finding("loader-crashes", "$", f"{one.name} crashes on the file: {judgement.reason}"),)
    return ()


def _is_yaml(file: str) -> bool | None:
    """Return whether the name of FILE has an ending of YAML; None if the name has no known ending."""
    if file.endswith((".yaml", ".yml")):
        return True
    return False if file.endswith(".json") else None


def _row(file: ValidatedFile, requested: tuple[RequestedLibrary, ...]) -> dict[str, object]:
    shown_versions = dict.fromkeys((*DEFAULT_RELEASES, *(one.library for one in requested)))
    return {
        "file": file.file,
        "valid": file.is_valid,
        "findings": [_finding_row(each) for each in file.findings],
        "loaders": {version: file.judged[version].verdict for version in shown_versions},
        "runtimes": acceptance.rows(file.judged),
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


def _text(file: ValidatedFile, arguments: Namespace) -> str:
    name = "standard input" if file.file == "-" else shown(file.file)
    word = "unknown" if file.is_unknown else "valid" if file.is_valid else "invalid"
    lines = [f"{name}: {word}"]
    lines += [
        f"  {shown(_line(found))}"
        for found in file.findings
        if found.severity == "error" or not arguments.quiet
    ]
    if os.path.splitext(file.file)[1] in (".yml", ".JSON", ".YAML", ".YML"):
        lines.append("  no runtime loads a file with this name: it must end in .json or .yaml")
    for group in acceptance.groups(file.judged):
        runtimes = "every runtime" if group.is_all else ", ".join(group.runtimes)
        lines.append(f"  {VERDICT_LABELS[group.verdict]} {runtimes}: {shown(group.reason)}")
    return "\n".join(lines) + "\n"


def _line(found: Finding) -> str:
    """Return the finding FOUND as one line, with its position in the file."""
    line = (
        found.line() if len(found.path) <= MAX_PATH else f"{found.severity}: {found.message} [{found.rule}]"
    )
    if not found.place:
        return line
    where = f"line {found.place[0]}, column {found.place[1]}"
    severity, _, rest = line.partition(": ")
    return line if where in rest else f"{severity}: {where}: {rest}"
