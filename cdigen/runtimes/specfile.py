"""One spec file as the CDI library in the runtimes reads it: ``read_spec_file``.

Strict parsing and our own rules come first: what they find good, every runtime loads. Only where they
find errors are the loaders themselves asked, who are less strict.
"""

from __future__ import annotations

import errno
import os
import posixpath
import stat

from cdigen.cdi.parse_cache import parse_and_check
from cdigen.cdi.reader import MAX_SIZE, ParsedDocument
from cdigen.host.root import shown
from cdigen.model.findings import Finding, errors
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# Exactly these, dot files included; .yml and .JSON are not loaded (docs/cdi.md, "Directories").
EXTENSIONS = (".json", ".yaml")
# The newest release stands for "a runtime": it loads all that older ones load, except documents that
# say 0.1.0 or 0.2.0, lists of devices that are empty, and fields that 1.1.0 removed (docs/cdi.md).
LIBRARY = "1.1.0"

_REFUSALS = {
    "reject": "no runtime loads this file:",
    "panic": "runtimes crash on this file:",
    "unknown": "runtimes may refuse this file:",
}


@frozen
class ParsedSpec:
    """A spec file whose devices are known; ``refusal`` says why no runtime loads it, if none does.

    ``document`` is as strict parsing gives it: None for a file that only the runtimes can read.
    """

    path: str
    directory: str
    kind: str
    devices: tuple[str, ...]
    document: dict[str, object] | None
    findings: tuple[Finding, ...] = ()
    refusal: str = ""


def read_spec_file(directory: str, name: str) -> tuple[tuple[ParsedSpec, ...], tuple[Finding, ...]]:
    """Return the file NAME of DIRECTORY, and an error finding if no runtime loads it.

    There is no file in the answer where none is there, where it cannot be read, and where nothing in
    it says which devices it means.
    """
    path = posixpath.join(directory, name)
    try:
        data = _content(path)
    except OSError as error:
        return (), (_problem("unreadable", path, f"no runtime loads this file: {error.strerror}"),)
    if data is None:
        return (), ()
    yaml = name.endswith(".yaml")
    reading = parse_and_check(data, yaml=yaml)
    document: Mapping[str, object] | None = reading.document
    refusal = ""
    if faults := errors(reading.findings):
        verdict = _verdict(data, yaml=yaml)
        if verdict == "accept":
            document = as_loaded(data, reading.document)
        else:
            refusal = f"{_REFUSALS[verdict]} {_summary(faults)}"
    problems = (_problem(faults[0].rule, path, refusal, hint=faults[0].hint),) if refusal else ()
    if document is None:
        return (), problems
    kind, devices = names_in(document)
    spec = ParsedSpec(
        path=path,
        directory=directory,
        kind=kind,
        devices=devices,
        document=reading.document,
        findings=reading.findings,
        refusal=refusal,
    )
    return (spec,), problems


def _content(path: str) -> bytes | None:
    # None: the runtimes pass over it (a directory), or it went away. OSError: they fail on it.
    try:
        status = os.stat(path)
    except FileNotFoundError:
        if posixpath.islink(path):
            raise
        return None
    if stat.S_ISDIR(status.st_mode) and not posixpath.islink(path):
        return None
    if not stat.S_ISREG(status.st_mode):
        # A fifo would hang a runtime until somebody writes to it; we do not open what is no file.
        raise OSError(errno.EINVAL, "it is not a regular file")
    with open(path, "rb") as file:
        return file.read(MAX_SIZE + 1)  # one more than the parser takes, for it to say so


def _verdict(data: bytes, *, yaml: bool) -> str:
    # Imported here: most files are good, and what the loaders make of others may need PyYAML (19 ms).
    from cdigen.cdi.loaders.emulation import verdicts  # noqa: PLC0415

    return verdicts(data, yaml=yaml, versions=(LIBRARY,))[LIBRARY]


def as_loaded(
    data: bytes, document: dict[str, object] | None, library: str = LIBRARY
) -> dict[str, object] | None:
    """Return what LIBRARY makes of DATA, which strict reading takes for DOCUMENT, if for anything.

    Field names in any letter case, a bare 0 that becomes text, comments and trailing commas in .json: the
    library's parser is one for YAML. DOCUMENT where the library refuses it too.
    """
    # Imported here: what the loaders make of a file may need PyYAML (19 ms).
    from cdigen.cdi.loaders.emulation import loaded_document  # noqa: PLC0415

    parsed = None if document is None else ParsedDocument(document=document, findings=())
    return loaded_document(data, library, parsed)


def names_in(document: Mapping[str, object]) -> tuple[str, tuple[str, ...]]:
    """Return the kind and the devices that DOCUMENT names, as far as it does."""
    kind, devices = document.get("kind"), document.get("devices")
    entries = devices if isinstance(devices, list) else []
    names = [entry.get("name") for entry in entries if isinstance(entry, dict)]
    texts = dict.fromkeys(name for name in names if isinstance(name, str))
    return kind if isinstance(kind, str) else "", tuple(texts)


def _summary(faults: tuple[Finding, ...]) -> str:
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return f"{faults[0].path}: {faults[0].message}{more}"


def _problem(rule: str, path: str, text: str, *, hint: str = "") -> Finding:
    return Finding(severity="error", rule=rule, path=path, message=f"{shown(path)}: {text}", hint=hint)
