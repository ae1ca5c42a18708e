"""Docker and `ctr` load a spec file, reject it, or crash, as `cdigen validate` predicts.

The documents of tests/data are files in the host's /etc/cdi when the daemons start. Each file gets a unique
vendor, so that no device is defined twice. Files that crash the CDI library are not in /etc/cdi, because they
would end the daemons. `ctr` reads each of these files alone, in a directory that no daemon reads.
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
# Two of the conformance documents contain a long text of one letter; the repository does not contain them.
LONG = {
    "41-annotation-long.json": {**plain(), "cdiVersion": "0.6.0", "annotations": {"k": "x" * 300_000}},
    "65-longenv.json": {**plain(), "containerEdits": {"env": ["A=" + "x" * 200_000]}},
}
# Names that ctr treats as CDI devices. Classes of one letter are excluded, because they crash ctr.
QUALIFIED = re.compile(r"[\w.-]+/[a-z][\w.-]*[a-z0-9]=[a-z0-9]([\w.:-]*[a-z0-9])?", re.ASCII | re.IGNORECASE)
WARNING = re.compile(r"CDI: Error associated with spec file /etc/cdi/(\d+\.json): (.*)", re.DOTALL)
UNRESOLVABLE = "unresolvable CDI devices "

# With this device, which does not exist, no container starts.
NOWHERE = "nowhere.com/no=device"
QUERY_CTR = f"""
mapfile -t names
ctr run --rm --rootfs --device {NOWHERE} "${{names[@]/#/--device=}}" / agree true 2>&1 || true
"""

# Run ctr with each file alone in the spec directory; print the name of the file and the result.
ENDINGS = {"panic:": PANIC, "CDI registry refresh failed:": REJECT, "ctr:": ACCEPT}
QUERY_CTR_ALONE = f"""
while read -r file; do
    printf '%s ' "$file"
    unshare --mount sh -c 'mount -t tmpfs cdi /{SPECS} && cp "$0" /{SPECS}/ && exec "$@"' "/{GIVEN}/$file" \
        ctr run --rm --rootfs --device {NOWHERE} / agree true </dev/null 2>&1 |
        grep --only-matching --max-count 1 -E '{"|".join(ENDINGS)}' || true
done
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A spec file; `vendor` is the unique vendor, or "" if the file has no vendor that can be replaced."""

    name: str
    data: bytes
    vendor: str

    def devices(self) -> set[str]:
        """Return the qualified names of the file's devices; if no name can be read, a likely name."""
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
    """A host whose daemons started with `documents` (file name -> document) in their spec directory.

    `verdicts` has, by daemon and file name, the verdict of `cdigen validate` for the daemon's CDI library.
    """

    host: Host
    documents: dict[str, Document]
    verdicts: dict[str, dict[str, str]]

    def files_with(self, daemon: str, verdict: str) -> set[str]:
        """Return the files for which cdigen predicts VERDICT with the CDI library of DAEMON."""
        return {file for file, predicted in self.verdicts[daemon].items() if predicted == verdict}

    def files_of(self, devices: set[str]) -> set[str]:
        """Return the files that define DEVICES; the vendor of a device identifies the file."""
        vendors = {device.partition("/")[0] for device in devices}
        return {file for file, document in self.documents.items() if document.vendor in vendors}

    def with_own_vendor(self) -> set[str]:
        """Return the files that have a unique vendor."""
        return {file for file, document in self.documents.items() if document.vendor}

    def names_of(self, files: set[str]) -> list[str]:
        """Return the names of the documents in FILES, which a failed test prints."""
        return sorted(self.documents[file].name for file in files)

    def info(self) -> dict[str, Any]:
        """Return the output of `docker info`."""
        info: dict[str, Any] = json.loads(self.host.run("docker info --format json"))
        return info

    def listed(self) -> set[str]:
        """Return the names of the devices that Docker has found."""
        return {device["ID"] for device in self.info()["DiscoveredDevices"]}


def documents() -> Iterator[tuple[str, bytes]]:
    """Yield the name and content of each document of tests/data."""
    for path in sorted((DATA / "cdi-conformance/specs").iterdir()):
        yield path.name, path.read_bytes()
    for name, document in LONG.items():
        yield name, to_bytes(document)
    for line in (DATA / "cdi-loaders/documents.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        yield row["name"], row["text"].encode() if "text" in row else bytes.fromhex(row["hex"])


def with_unique_vendor(number: int, name: str, data: bytes) -> Document:
    """Set the vendor of a document to a unique name of usual length, without any other change."""
    encoding = ENCODINGS.get(data[:2], "utf-8")
    vendor = f"v{number:05}.com"
    changed = data
    for before in VENDORS:
        changed = changed.replace(f"{before}/".encode(encoding), f"{vendor}/".encode(encoding))
    return Document(name=name, data=changed, vendor=vendor if changed != data else "")


def validated(folder: Path, libraries: dict[str, str]) -> dict[str, dict[str, str]]:
    """Return the verdicts of `cdigen validate` on the files of FOLDER, for the library of each daemon."""
    loaders = [f"--loader={library}" for library in libraries.values()]
    # The exit code is 1, because some files are invalid.
    shell = ("sh", "-c", '"$@" || test $? = 1', "sh")
    rows = json.loads(
        succeed(*shell, sys.executable, "-m", "cdigen", "validate", "--json", *loaders, str(folder))
    )
    return {
        daemon: {Path(row["file"]).name: row["loaders"][library] for row in rows}
        for daemon, library in libraries.items()
    }


def libraries_of(host: Host) -> dict[str, str]:
    """Return, for each daemon on the host, the CDI library of its release in cdigen's table."""
    outputs = {daemon: host.run(f"{daemon} --version") for daemon in ("docker", "containerd")}
    releases = {daemon: re.search(r"\b\d+\.\d+\.\d+", text) for daemon, text in outputs.items()}
    return {
        daemon: targets.parse(f"{daemon}-{release[0]}").library
        for daemon, release in releases.items()
        if release
    }


@pytest.fixture(scope="module")
def daemons(cache: Path, images: Path) -> Iterator[Daemons]:
    """Run Docker and containerd on a host that has all documents in its spec directory."""
    files = {f"{number}.json": with_unique_vendor(number, *row) for number, row in enumerate(documents())}
    with copied_tree(cache / "runtimes-forky", cache) as root:
        given = root / GIVEN
        given.mkdir(parents=True)
        for file, document in files.items():
            (given / file).write_bytes(document.data)
        with running_host(root, images=images) as host:
            print(host.run(VERSIONS))
            verdicts = validated(given, libraries_of(host))
            # A file without a prediction (UNKNOWN) is omitted, because it may crash an old library.
            known = [file for file in files if not any(row[file] == UNKNOWN for row in verdicts.values())]
            found = Daemons(
                host=host,
                documents={file: files[file] for file in known},
                verdicts={daemon: {file: row[file] for file in known} for daemon, row in verdicts.items()},
            )
            installed = (
                found.documents.keys()
                - found.files_with("docker", PANIC)
                - found.files_with("containerd", PANIC)
            )
            copy = f"mkdir --parents /{SPECS} && cd /{GIVEN} && xargs cp --target-directory /{SPECS}"
            host.run(copy, stdin="\n".join(installed))
            host.run(START_DAEMONS)
            yield found


def test_docker_lists_the_devices_of_files_with_the_verdict_accept(daemons: Daemons) -> None:
    listed = daemons.listed()
    expected = daemons.files_with("docker", ACCEPT) & daemons.with_own_vendor()
    assert daemons.names_of(daemons.files_of(listed)) == daemons.names_of(expected)


def test_docker_warns_of_files_with_the_verdict_reject(daemons: Daemons) -> None:
    found = [WARNING.fullmatch(warning) for warning in daemons.info()["Warnings"]]
    warned = {match[1]: match[2] for match in found if match}
    assert [reason for reason in warned.values() if reason.startswith("conflicting device")] == []
    assert daemons.names_of(set(warned)) == daemons.names_of(daemons.files_with("docker", REJECT))


def test_ctr_resolves_the_devices_of_files_with_the_verdict_accept(daemons: Daemons) -> None:
    likely = {name for file in daemons.with_own_vendor() for name in daemons.documents[file].devices()}
    queried = likely | daemons.listed()  # Docker lists devices of files that parse_document cannot read
    output = daemons.host.run(QUERY_CTR, stdin="\n".join(sorted(queried))).strip()
    unresolved = set(output.partition(UNRESOLVABLE)[2].split(", "))
    assert NOWHERE in unresolved, output
    expected = daemons.files_with("containerd", ACCEPT) & daemons.with_own_vendor()
    assert daemons.names_of(daemons.files_of(queried - unresolved)) == daemons.names_of(expected)


def test_ctr_treats_a_single_file_as_predicted(daemons: Daemons) -> None:
    """Test the files that crash ctr, and the files without a unique vendor."""
    queried = daemons.files_with("containerd", PANIC) | (daemons.documents.keys() - daemons.with_own_vendor())
    output = daemons.host.run(QUERY_CTR_ALONE, stdin="".join(f"{file}\n" for file in sorted(queried)))
    found = {file: ENDINGS[ending] for file, ending in (row.split(" ", 1) for row in output.splitlines())}
    assert found == {file: daemons.verdicts["containerd"][file] for file in queried}
