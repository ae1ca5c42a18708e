"""`list`, `doctor`, `validate`, the daemon and the NRI plugin agree on every spec directory."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import socket
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.doctor.requests import doctor_context
from support.values.spec_documents import of_devices

from cdigen.cdi.loaders.emulation import loader_verdicts
from cdigen.cli.main import main
from cdigen.config import Settings
from cdigen.doctor.checks.loading import lost_names
from cdigen.nri.decision.context import LIBRARY, context_of
from cdigen.pipeline.publish import serving_file
from cdigen.runtimes.spec_cache import SpecCache
from cdigen.service.host_state import HostSources, read_host_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
TREES, PARTS = 4_000, 4
SEED = 20_261_122

KINDS = ("nvidia.com/gpu", "amd.com/gpu", "example.com/net.vf")
DEVICES = ("0", "1", "2", "10", "all")
FILE_NAMES = ("a.json", "b.json", "c.yaml", ".d.json", "e f.json", "g.yml", "H.JSON", "i.json.bak", "j")
DIRECTORIES = (
    "/etc/cdi", "/run/cdi", "/var/run/cdi", "/opt/linked", "/opt/file", "/opt/missing", "/opt/more",
)  # fmt: skip


def dumped(kind: str, names: tuple[str, ...], **changes: object) -> bytes:
    document = of_devices(*names, kind=kind, **{"cdiVersion": "0.6.0", **changes})
    return json.dumps(document).encode()


def with_null(kind: str, names: tuple[str, ...]) -> bytes:
    """Return a document that crashes the libraries, because they follow the pointer of a null entry."""
    device = {"name": "x", "containerEdits": {"env": ["A=B"], "hooks": [None]}}
    return dumped(kind, names, devices=[*of_devices(*names)["devices"], device])


CONTENTS: dict[str, Callable[[str, tuple[str, ...]], bytes]] = {
    "good": dumped,
    "good, again": dumped,
    "good, once more": dumped,
    "YAML within": lambda kind, names: b"# a comment\n" + dumped(kind, names),
    "another letter case": lambda kind, names: dumped(kind, names).replace(b'"kind"', b'"KIND"'),
    "only our rules forbid it": lambda kind, names: dumped(
        kind, names, containerEdits={"deviceNodes": [{"path": "dev/x"}]}
    ),
    "unknown field": lambda kind, names: dumped(kind, names, more=1),
    "version of the future": lambda kind, names: dumped(kind, names, cdiVersion="9.9.9"),
    "a device twice": lambda kind, names: dumped(kind, (*names, *names)),
    "half": lambda kind, names: dumped(kind, names)[:-9],
    "no text": lambda _kind, _names: b"\xff\xfe\xff",
    "nothing": lambda _kind, _names: b"",
    "crashes by its kind": lambda _kind, names: dumped("v/g", names),
    "crashes by a null": with_null,
}
# Most of the files with these contents get good content instead.
CRASHING = ("crashes by its kind", "crashes by a null")
LINKS = {"dangling link": "nowhere", "link to itself": "", "link to a folder": "../../etc"}
FORMS = ("file",) * 20 + ("link", "link", "dangling link", "link to itself", "link to a folder", "folder",
                           "fifo", "socket", "hidden", "too large")  # fmt: skip


@cache
def verdict_on(content: bytes, name: str) -> str:
    return loader_verdicts(content, yaml=not name.endswith(".json"), versions=("1.1.0",))["1.1.0"].verdict


@dataclass(frozen=True, slots=True)
class File:
    """A file of the tree: the result of a runtime (``skip`` for an ignored file), and the definitions."""

    verdict: str
    kind: str
    names: tuple[str, ...]


class Tree:
    """A random host, and the results of runtimes by the rules of pkg/cdi.

    docs/reference/cdi-loaders.md, "Directories", lists the rules.
    """

    def __init__(self, root: Path, chance: random.Random) -> None:
        self.root = root
        self._chance = chance
        self._cache = SpecCache()
        self.files: dict[str, dict[str, File]] = {}
        self.at("/opt/aside").mkdir(parents=True)
        for directory in ("/etc/cdi", "/run/cdi", "/opt/more"):
            self.at(directory).mkdir(parents=True)
            names = chance.sample(FILE_NAMES, chance.choice((0, 1, 1, 2, 2, 3, 4)))
            self.files[directory] = {name: self._make(directory, name) for name in names}
        self.at("/var").mkdir()
        self.at("/var/run").symlink_to("../run")
        self.at("/opt/linked").symlink_to("more")
        self.at("/opt/file").write_bytes(b"")
        self.listed = tuple(
            chance.sample(DIRECTORIES, chance.choice((1, 2, 2, 3, 4)), counts=(6, 3, 6, 1, 1, 1, 3))
        )
        self.listed = tuple(dict.fromkeys(self.listed))
        self.at("/etc/cdigen").mkdir()
        self.at("/etc/cdigen/config.yaml").write_text(json.dumps({"spec_dirs": self.listed}))

    def at(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def _make(self, directory: str, name: str) -> File:
        chance, place = self._chance, self.at(f"{directory}/{name}")
        what = chance.choice(tuple(CONTENTS))
        if what in CRASHING and chance.random() < 0.6:
            what = "good"
        kind, names = chance.choice(KINDS), tuple(chance.sample(DEVICES, chance.choice((1, 1, 2, 3))))
        content = CONTENTS[what](kind, names)
        verdict = self._write(place, chance.choice(FORMS), content)
        if not name.endswith((".json", ".yaml")):
            verdict = "skip"
        return File(verdict=verdict, kind="v/g" if what == "crashes by its kind" else kind, names=names)

    def _write(self, place: Path, form: str, content: bytes) -> str:
        """Make PLACE with CONTENT, or as another kind of file (FORM), and return the result of a runtime."""
        if form in LINKS:
            place.symlink_to(LINKS[form] or place.name)
            return "unreadable"
        match form:
            case "link":
                aside = self.at(f"/opt/aside/{len(os.listdir(self.at('/opt/aside')))}")
                aside.write_bytes(content)
                place.symlink_to(f"../../opt/aside/{aside.name}")
            case "folder":
                place.mkdir()
                return "skip"
            case "fifo":
                os.mkfifo(place)
                return "hang"
            case "socket":
                with contextlib.chdir(place.parent), socket.socket(socket.AF_UNIX) as bound:
                    bound.bind(place.name)
                return "unreadable"
            case "too large":
                place.write_bytes(b"{}")
                os.truncate(place, (16 << 20) + 1)
                return "unknown"
            case _:
                place.write_bytes(content)
        if form == "hidden":
            place.chmod(0)
            return verdict_on(content, place.name) if os.geteuid() == 0 else "unreadable"
        return verdict_on(content, place.name)

    def expected(self, listed: tuple[str, ...]) -> dict[str, str]:
        """Return each device that a runtime finds, and its file, as scanSpecDirs and Cache.refresh do."""
        found: dict[str, tuple[int, str]] = {}
        conflicts = set()
        last = {_real(path): path for path in listed}
        for priority, path in enumerate(path for path in listed if last[_real(path)] == path):
            directory = _real(path)
            for name, file in sorted(self.files.get(directory, {}).items()):
                if file.verdict in {"panic", "hang"}:
                    return {}
                for device in file.names if file.verdict == "accept" else ():
                    qualified = f"{file.kind}={device}"
                    if qualified in found and found[qualified][0] == priority:
                        conflicts.add(qualified)
                    found[qualified] = priority, f"{directory}/{name}"
        return {name: file for name, (_, file) in found.items() if name not in conflicts}

    def verdicts(self) -> dict[str, str]:
        """Return the result of a runtime for each file that it opens, in words of `validate`."""
        words = {"hang": "unknown", "unreadable": "unknown"}
        return {
            f"{directory}/{name}": words.get(file.verdict, file.verdict)
            for directory, files in self.files.items()
            for name, file in files.items()
            if file.verdict != "skip"
        }

    # The programs that are compared.

    def by_list(self) -> dict[str, str]:
        rows = self._command("list", "--root", str(self.root))
        assert all(bool(row["reason"]) is not row["usable"] for row in rows)
        return {row["device"]: self._inner(row["file"]) for row in rows if row["usable"]}

    def by_doctor(self) -> dict[str, str]:
        names = tuple(f"{kind}={name}" for kind in KINDS for name in DEVICES)
        context = doctor_context(
            str(self.root),
            configuration=Settings(spec_dirs=self.listed),
            spec_dirs=tuple(map(self._outer, self.listed)),
            state_dir=self._outer("/var/lib/cdigen"),
            devices=names,
        )
        (runtime,) = context.runtimes
        lost = {resolution.device for resolution in lost_names(context, runtime)}
        found = {name: _real(file) for name, file in context.view(runtime).devices}
        assert found.keys() == set(names) - lost
        assert found == {name: _real(file) for name, file in context.own_view.devices}
        return found

    def by_nri(self) -> set[str]:
        tree = str(self.root)
        sources = HostSources(host=tree, specs=tree, spec_dirs=self.listed, runs=tree, run_dir="/run/cdigen")
        names = context_of(read_host_state(sources, library=LIBRARY), Settings()).names
        return {f"{kind}={name}" for kind in (*KINDS, "v/g") for name in names.of(kind)}

    def by_validate(self) -> dict[str, str]:
        """Return the result of the newest library for each file of the directories that exist."""
        folders = [self._outer(path) for path in self.files if self.files[path]]
        rows = self._command("validate", *folders) if any(map(self._has_specs, self.files)) else []
        return {self._inner(row["file"]): row["loaders"]["1.1.0"] for row in rows}

    def by_daemon(self, listed: tuple[str, ...], kind: str) -> str:
        return self._inner(serving_file(kind, tuple(map(self._outer, listed)), self._cache))

    def _has_specs(self, directory: str) -> bool:
        return any(name.endswith((".json", ".yaml")) and file.verdict != "skip"
                   for name, file in self.files[directory].items())  # fmt: skip

    def _command(self, *arguments: str) -> list[dict[str, Any]]:
        out = io.TextIOWrapper(io.BytesIO())
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            main([*arguments, "--json"])
        out.seek(0)
        found: list[dict[str, Any]] = json.load(out)
        return found

    def _outer(self, path: str) -> str:
        return f"{self.root}{path}"

    def _inner(self, path: str) -> str:
        return _real(path.removeprefix(str(self.root)))


def _real(path: str) -> str:
    return path.removeprefix("/var") if path.startswith("/var/run/") else path


def trees(part: int) -> Iterator[Tree]:
    for number in range(part, TREES, PARTS):
        with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
            yield Tree(Path(folder), random.Random(SEED + number))


# 'make quick' runs only the first part.
@pytest.mark.parametrize(
    "part", [0, *(pytest.param(part, marks=pytest.mark.adversarial) for part in range(1, PARTS))]
)
def test_on_any_tree_all_programs_find_the_same_devices(part: int) -> None:
    met = {"devices": 0, "none": 0, "panic": 0, "hang": 0, "reject": 0, "unknown": 0, "unreadable": 0}
    for tree in trees(part):
        expected = tree.expected(tree.listed)
        assert tree.by_list() == expected
        assert tree.by_doctor() == expected
        assert tree.by_nri() == expected.keys()
        assert tree.by_validate() == tree.verdicts()
        below = tree.expected(tree.listed[:-1])
        for kind in KINDS:
            of_kind = {file for name, file in below.items() if name.startswith(f"{kind}=")}
            assert tree.by_daemon(tree.listed[:-1], kind) in (of_kind or {""})
        met["devices" if expected else "none"] += 1
        for verdict in {
            file.verdict for files in tree.files.values() for file in files.values()
        } & met.keys():
            met[verdict] += 1
    assert min(met.values()) > TREES / PARTS / 40, met
