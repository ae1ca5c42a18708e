"""Docker and `ctr` load, refuse and crash on the spec files of which `cdigen validate` says so.

Each document of tests/data is a file of its own in the host's /etc/cdi when the daemons start, side by side
with all the others: it gets a vendor of its own, so that no device is there twice. A file that crashes the
library would end the daemons: Docker never gets one, and `ctr` gets it alone, where no daemon sees it.
"""

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.containers.chroot_host import Host, running_host
from support.containers.forky_host import START_DAEMONS, VERSIONS
from support.containers.gpu_hosts import succeed
from support.own_trees import copied_tree
from support.values.spec_documents import plain, to_bytes

from cdigen.cdi.loaders.emulation import ACCEPT, PANIC, REJECT, UNKNOWN
from cdigen.cdi.reader import parse_document
from cdigen.runtimes import targets

pytestmark = pytest.mark.e2e

DATA = Path(__file__).resolve().parents[1] / "data"
SPECS, GIVEN = "etc/cdi", "srv/given"
ENCODINGS = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
VENDORS = ("vendor.com", "VENDOR_x", "v.com", "a.b")
# Two of the conformance documents are long texts of one letter; the repository does not carry them.
LONG = {
    "41-annotation-long.json": {**plain(), "cdiVersion": "0.6.0", "annotations": {"k": "x" * 300_000}},
    "65-longenv.json": {**plain(), "containerEdits": {"env": ["A=" + "x" * 200_000]}},
}
# Names that ctr takes for those of CDI devices; a class of one letter would crash it here already.
QUALIFIED = re.compile(r"[\w.-]+/[a-z][\w.-]*[a-z0-9]=[a-z0-9]([\w.:-]*[a-z0-9])?", re.ASCII | re.IGNORECASE)
WARNING = re.compile(r"CDI: Error associated with spec file /etc/cdi/(\d+\.json): (.*)", re.DOTALL)
UNRESOLVABLE = "unresolvable CDI devices "

# No container starts, for one of the devices is nowhere.
NOWHERE = "nowhere.com/no=device"
ASK_CTR = f"""
mapfile -t names
ctr run --rm --rootfs --device {NOWHERE} "${{names[@]/#/--device=}}" / agree true 2>&1 || true
"""

# Each file alone in a spec directory that one process sees; print its name and how that process took it.
ENDINGS = {"panic:": PANIC, "CDI registry refresh failed:": REJECT, "ctr:": ACCEPT}
ASK_CTR_ALONE = f"""
while read -r file; do
    printf '%s ' "$file"
    unshare --mount sh -c 'mount -t tmpfs cdi /{SPECS} && cp "$0" /{SPECS}/ && exec "$@"' "/{GIVEN}/$file" \
        ctr run --rm --rootfs --device {NOWHERE} / agree true </dev/null 2>&1 |
        grep --only-matching --max-count 1 -E '{"|".join(ENDINGS)}' || true
done
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A spec file; VENDOR is a name that no other one has, or empty where none could be put in."""

    name: str
    data: bytes
    vendor: str

    def devices(self) -> set[str]:
        """Return the qualified names of its devices as far as they can be told, or else a likely one."""
        document = parse_document(self.data, yaml=None).document or {}
        devices = document.get("devices")
        names = {
            f"{document.get('kind')}={device.get('name')}"
            for device in (devices if isinstance(devices, list) else ())
            if isinstance(device, dict)
        }
        own = {name for name in names if QUALIFIED.fullmatch(name) and name.startswith(self.vendor)}
        return own or {f"{self.vendor}/gpu=0"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemons:
    """A host whose daemons started with the files of DOCUMENTS, by file name, in their spec directory.

    ANSWERS has the verdict of `cdigen validate` for the CDI library of each daemon, by file name.
    """

    host: Host
    documents: dict[str, Document]
    answers: dict[str, dict[str, str]]

    def those(self, daemon: str, verdict: str) -> set[str]:
        """Return the files of which cdigen has this VERDICT for the library of DAEMON."""
        return {file for file, answer in self.answers[daemon].items() if answer == verdict}

    def of(self, devices: set[str]) -> set[str]:
        """Return the files whose own vendor one of DEVICES has."""
        vendors = {device.partition("/")[0] for device in devices}
        return {file for file, document in self.documents.items() if document.vendor in vendors}

    def told_apart(self) -> set[str]:
        """Return the files that have a vendor of their own."""
        return {file for file, document in self.documents.items() if document.vendor}

    def named(self, files: set[str]) -> list[str]:
        """Return the names of documents, for whoever reads a failure."""
        return sorted(self.documents[file].name for file in files)

    def info(self) -> dict[str, Any]:
        """Return what `docker info` says."""
        said: dict[str, Any] = json.loads(self.host.run("docker info --format json"))
        return said

    def listed(self) -> set[str]:
        """Return the names of the devices that Docker has found."""
        return {device["ID"] for device in self.info()["DiscoveredDevices"]}


def documents() -> Iterator[tuple[str, bytes]]:
    """Yield name and content of every document that real libraries were run on."""
    for path in sorted((DATA / "cdi-conformance/specs").iterdir()):
        yield path.name, path.read_bytes()
    for name, document in LONG.items():
        yield name, to_bytes(document)
    for line in (DATA / "cdi-loaders/documents.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        yield row["name"], row["text"].encode() if "text" in row else bytes.fromhex(row["hex"])


def told_apart(number: int, name: str, data: bytes) -> Document:
    """Give a document a vendor of its own, which is as long as most are, and change nothing else."""
    encoding = ENCODINGS.get(data[:2], "utf-8")
    vendor = f"v{number:05}.com"
    changed = data
    for before in VENDORS:
        changed = changed.replace(f"{before}/".encode(encoding), f"{vendor}/".encode(encoding))
    return Document(name=name, data=changed, vendor=vendor if changed != data else "")


def validated(folder: Path, libraries: dict[str, str]) -> dict[str, dict[str, str]]:
    """Return what `cdigen validate` says of the files of FOLDER, for the library of each daemon."""
    loaders = [f"--loader={library}" for library in libraries.values()]
    # It exits with 1, as there are files that are wrong.
    shell = ("sh", "-c", '"$@" || test $? = 1', "sh")
    rows = json.loads(
        succeed(*shell, sys.executable, "-m", "cdigen", "validate", "--json", *loaders, str(folder))
    )
    return {
        daemon: {Path(row["file"]).name: row["loaders"][library] for row in rows}
        for daemon, library in libraries.items()
    }


def libraries_of(host: Host) -> dict[str, str]:
    """Return the CDI library that cdigen knows for the release of each daemon on the host."""
    said = {daemon: host.run(f"{daemon} --version") for daemon in ("docker", "containerd")}
    releases = {daemon: re.search(r"\b\d+\.\d+\.\d+", text) for daemon, text in said.items()}
    return {
        daemon: targets.parse(f"{daemon}-{release[0]}").library
        for daemon, release in releases.items()
        if release
    }


@pytest.fixture(scope="module")
def daemons(cache: Path, images: Path) -> Iterator[Daemons]:
    """Run Docker and containerd on a host that has all documents in its spec directory."""
    files = {f"{number}.json": told_apart(number, *row) for number, row in enumerate(documents())}
    with copied_tree(cache / "runtimes-forky", cache) as root:
        given = root / GIVEN
        given.mkdir(parents=True)
        for file, document in files.items():
            (given / file).write_bytes(document.data)
        with running_host(root, images=images) as host:
            print(host.run(VERSIONS))
            answers = validated(given, libraries_of(host))
            # What old loaders do with the others, cdigen does not claim to know; some crash them.
            known = [file for file in files if not any(row[file] == UNKNOWN for row in answers.values())]
            found = Daemons(
                host=host,
                documents={file: files[file] for file in known},
                answers={daemon: {file: row[file] for file in known} for daemon, row in answers.items()},
            )
            laid = found.documents.keys() - found.those("docker", PANIC) - found.those("containerd", PANIC)
            copy = f"mkdir --parents /{SPECS} && cd /{GIVEN} && xargs cp --target-directory /{SPECS}"
            host.run(copy, stdin="\n".join(laid))
            host.run(START_DAEMONS)
            yield found


def test_docker_lists_the_devices_of_the_files_that_it_is_said_to_load(daemons: Daemons) -> None:
    listed = daemons.listed()
    expected = daemons.those("docker", ACCEPT) & daemons.told_apart()
    assert daemons.named(daemons.of(listed)) == daemons.named(expected)


def test_docker_warns_of_the_files_that_it_is_said_to_refuse(daemons: Daemons) -> None:
    found = [WARNING.fullmatch(warning) for warning in daemons.info()["Warnings"]]
    warned = {match[1]: match[2] for match in found if match}
    assert [reason for reason in warned.values() if reason.startswith("conflicting device")] == []
    assert daemons.named(set(warned)) == daemons.named(daemons.those("docker", REJECT))


def test_ctr_resolves_the_devices_of_the_files_that_it_is_said_to_load(daemons: Daemons) -> None:
    likely = {name for file in daemons.told_apart() for name in daemons.documents[file].devices()}
    asked = likely | daemons.listed()  # which knows those of files that only a lenient reader understands
    said = daemons.host.run(ASK_CTR, stdin="\n".join(sorted(asked))).strip()
    unresolved = set(said.partition(UNRESOLVABLE)[2].split(", "))
    assert NOWHERE in unresolved, said
    expected = daemons.those("containerd", ACCEPT) & daemons.told_apart()
    assert daemons.named(daemons.of(asked - unresolved)) == daemons.named(expected)


def test_ctr_does_with_a_file_alone_what_it_is_said_to_do(daemons: Daemons) -> None:
    """Those that crash it, and those of which no device says whether they were loaded."""
    asked = daemons.those("containerd", PANIC) | (daemons.documents.keys() - daemons.told_apart())
    said = daemons.host.run(ASK_CTR_ALONE, stdin="".join(f"{file}\n" for file in sorted(asked)))
    found = {file: ENDINGS[ending] for file, ending in (row.split(" ", 1) for row in said.splitlines())}
    assert found == {file: daemons.answers["containerd"][file] for file in asked}
