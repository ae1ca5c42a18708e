"""Which kinds cover each other's mounts, and which meet without harm."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING, Any

import pytest

from cdigen.cdi.rules.mount_conflicts import MAX_COMPARED, MAX_LEVELS, MountConflicts
from cdigen.host.root import Root

if TYPE_CHECKING:
    from pathlib import Path

VIEWS = "/var/lib/cdigen/views"
FIRST, SECOND = f"{VIEWS}/nvidia-0123456789abcdef", f"{VIEWS}/nvidia-fedcba9876543210-2"
HWCAPS = "/usr/lib64/glibc-hwcaps/x86-64-v2"


def spec(kind: str, *mounts: tuple[str, str], device: tuple[tuple[str, str], ...] = ()) -> dict[str, Any]:
    """Return a spec with MOUNTS (source, target), and those of its device 0."""
    return {
        "cdiVersion": "0.5.0",
        "kind": kind,
        "containerEdits": {"mounts": listed(mounts)},
        "devices": [{"name": "0", "containerEdits": {"env": ["A=1"], "mounts": listed(device)}}],
    }


def listed(mounts: tuple[tuple[str, str], ...]) -> list[dict[str, str]]:
    return [{"hostPath": source, "containerPath": target, "type": "bind"} for source, target in mounts]


def said(*documents: dict[str, Any], host: Root | None = None) -> list[str]:
    mount_conflicts = MountConflicts(host)
    return [found.message for document in documents for found in mount_conflicts.add(document)]


def both_ways(one: dict[str, Any], other: dict[str, Any]) -> list[list[str]]:
    return [said(*order) for order in itertools.permutations((one, other))]


def test_two_sources_at_one_path_are_named_with_both_kinds() -> None:
    one, other = spec("a.com/gpu", ("/opt/a", "/usr/local/x")), spec("b.com/npu", ("/opt/b", "/usr/local/x"))
    mount_conflicts = MountConflicts()
    assert mount_conflicts.add(one) == ()
    (finding,) = mount_conflicts.add(other)
    assert finding.message == (
        "a.com/gpu and b.com/npu both mount /usr/local/x, from /opt/a and /opt/b: "
        "a container with both has one of them only"
    )
    assert (finding.severity, finding.rule) == ("warning", "mounts-covered")
    assert finding.path == "$.containerEdits.mounts[0]"


def test_a_devices_own_mount_is_named_by_the_device() -> None:
    one = spec("a.com/gpu", ("/opt/a", "/x"))
    other = spec("b.com/npu", device=(("/opt/b", "/x/"),))
    assert said(one, other)[0].startswith("a.com/gpu and b.com/npu=0 both mount /x")


def test_a_mount_within_anothers_is_named_whichever_comes_first() -> None:
    outer, inner = spec("a.com/gpu", ("/opt/a", "/x")), spec("b.com/npu", ("/opt/b/lib", "/x/y/lib"))
    for (message,) in both_ways(outer, inner):
        assert message == (
            "b.com/npu mounts /x/y/lib within /x of a.com/gpu: a container with both lacks a part of the "
            "latter, or does not start"
        )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((("/opt/a", "/x"),), (("/opt/a", "/x"),)),
        ((("/opt/a", "/x"),), (("/opt/a", "/x/"),)),
        ((("/opt/a", "/x"),), (("/opt/a/y/z", "/x/y/z"),)),  # the same as what the outer one shows there
        ((("/opt/a", "/x"),), (("/opt/b", "/xy"),)),
        ((("/opt/a", "/x/a"),), (("/opt/b", "/x/b"),)),
        # A program of the driver, from each kind's own view.
        (((f"{FIRST}/bin/smi", "/usr/bin/smi"),), ((f"{SECOND}/bin/smi", "/usr/bin/smi"),)),
        # The same, where one kind has it from where it is.
        (((f"{FIRST}/bin/smi", "/usr/bin/smi"),), (("/usr/lib/driver/bin/smi", "/usr/bin/smi"),)),
        (((f"{FIRST}/fixed/usr/share/icd.json", "/icd"),), (("/usr/share/icd.json", "/icd"),)),
        # The folders for capable processors: each kind's libraries are in its own view as well.
        (((FIRST, "/a"), (f"{FIRST}/lib64", HWCAPS)), ((SECOND, "/b"), (f"{SECOND}/lib64", HWCAPS))),
    ],
)
def test_what_does_no_harm_is_not_named(
    one: tuple[tuple[str, str], ...], other: tuple[tuple[str, str], ...]
) -> None:
    assert both_ways(spec("a.com/gpu", *one), spec("b.com/npu", *other)) == [[], []]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        # As every view was mounted once.
        (((FIRST, "/usr/local/nvidia"),), ((SECOND, "/usr/local/nvidia"),)),
        # Of one of them nothing else is left.
        (((FIRST, "/a"), (f"{FIRST}/lib64", HWCAPS)), (("/opt/b", HWCAPS),)),
        # What it has elsewhere is covered there, too.
        (((FIRST, "/a"), (FIRST, HWCAPS)), ((SECOND, "/a"), (SECOND, HWCAPS))),
        (((f"{FIRST}/lib64", HWCAPS),), ((f"{SECOND}/lib64", HWCAPS),)),
        (((f"{FIRST}/bin/smi", "/usr/bin/smi"),), (("/opt/other", "/usr/bin/smi"),)),
        (((f"{FIRST}/bin/smi", "/usr/bin/x"),), ((f"{SECOND}/bin/debugdump", "/usr/bin/x"),)),
        ((("/opt/a", "/"),), (("/opt/b", "/x"),)),
    ],
)
def test_what_vanishes_is_named(one: tuple[tuple[str, str], ...], other: tuple[tuple[str, str], ...]) -> None:
    for messages in both_ways(spec("a.com/gpu", *one), spec("b.com/npu", *other)):
        assert len(messages) == 1


def test_a_file_system_of_its_own_covers_as_well() -> None:
    other = spec("b.com/npu", ("tmpfs", "/x"))
    other["containerEdits"]["mounts"][0]["type"] = "tmpfs"
    assert len(said(spec("a.com/gpu", ("/opt/a", "/x/lib")), other)) == 1


def test_kinds_are_compared_with_each_other_not_with_themselves() -> None:
    same = (spec("a.com/gpu", ("/opt/a", "/x")), spec("a.com/gpu", ("/opt/b", "/x")))
    assert said(*same) == []
    third = spec("c.com/gpu", ("/opt/c", "/x"), ("/opt/c", "/y"))
    assert [
        message.split(" both")[0] for message in said(same[0], spec("b.com/npu", ("/b", "/x")), third)
    ] == [
        "a.com/gpu and b.com/npu",
        "a.com/gpu and c.com/gpu",
        "b.com/npu and c.com/gpu",
    ]


def test_several_places_are_counted_in_one_finding() -> None:
    one = spec("a.com/gpu", *((f"/a/{name}", f"/x/{name}") for name in "abc"))
    other = spec("b.com/npu", *((f"/b/{name}", f"/x/{name}") for name in "abc"))
    (message,) = said(one, other)
    assert message.endswith(" (and 2 more such places)")


def test_one_file_under_two_paths_of_the_host_is_one_source(tmp_path: Path) -> None:
    (tmp_path / "first").write_text("x")
    os.link(tmp_path / "first", tmp_path / "second")
    (tmp_path / "third").write_text("x")
    one = spec("a.com/gpu", ("/first", "/x"))
    host = Root(str(tmp_path))
    assert said(one, spec("b.com/npu", ("/second", "/x")), host=host) == []
    assert len(said(one, spec("b.com/npu", ("/third", "/x")), host=host)) == 1
    assert len(said(one, spec("b.com/npu", ("/gone", "/x")), host=host)) == 1
    assert len(said(one, spec("b.com/npu", ("/second", "/x")))) == 1


def test_of_two_files_of_one_name_the_size_tells_whether_one_is_a_copy(tmp_path: Path) -> None:
    view = tmp_path / FIRST.lstrip("/") / "bin"
    view.mkdir(parents=True)
    (view / "smi").write_text("12345")
    (tmp_path / "copied").mkdir()
    (tmp_path / "copied/smi").write_text("12345")
    (tmp_path / "smi").write_text("another")
    one, host = spec("a.com/gpu", (f"{FIRST}/bin/smi", "/smi")), Root(str(tmp_path))
    assert said(one, spec("b.com/npu", ("/copied/smi", "/smi")), host=host) == []
    assert len(said(one, spec("b.com/npu", ("/smi", "/smi")), host=host)) == 1


def test_monsters_cost_no_more_than_their_bounds() -> None:
    deep = "/x" * (MAX_LEVELS + 1)
    assert said(spec("a.com/gpu", ("/a", deep)), spec("b.com/npu", ("/b", deep))) == []
    many = [
        spec(kind, *((f"/{kind}/{n}", f"/x/{n}") for n in range(20_000))) for kind in ("a.com/gg", "b.com/gg")
    ]
    assert len(said(*many)) == 1
    crowd = [spec(kind, *((f"/{kind}/{n}", "/x") for n in range(5_000))) for kind in ("a.com/gg", "b.com/gg")]
    assert len(said(*crowd)) == 1


def test_many_files_with_the_same_mounts_hide_no_conflict() -> None:
    mounts = tuple((f"/opt/lib{number}", f"/usr/lib/lib{number}") for number in range(200))
    files = [spec("a.com/gpu", *mounts)] * (2 * MAX_COMPARED // len(mounts))
    (message,) = said(*files, spec("b.com/npu", *mounts[:-1], ("/opt/other", mounts[-1][1])))
    assert message.startswith(f"a.com/gpu and b.com/npu both mount {mounts[-1][1]}, ")


def test_of_two_sources_that_a_kind_has_at_one_path_each_is_compared() -> None:
    files = [spec("a.com/gpu", (source, "/x")) for source in ("/opt/a", "/opt/b")]
    (message,) = said(*files, spec("b.com/npu", ("/opt/a", "/x")))
    assert "from /opt/b and /opt/a" in message
