"""Conflicts between the mounts of two kinds."""

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
    """Return a spec with MOUNTS for all devices and the mounts DEVICE for device 0, as (source, target)."""
    return {
        "cdiVersion": "0.5.0",
        "kind": kind,
        "containerEdits": {"mounts": listed(mounts)},
        "devices": [{"name": "0", "containerEdits": {"env": ["A=1"], "mounts": listed(device)}}],
    }


def listed(mounts: tuple[tuple[str, str], ...]) -> list[dict[str, str]]:
    return [{"hostPath": source, "containerPath": target, "type": "bind"} for source, target in mounts]


def messages(*documents: dict[str, Any], host: Root | None = None) -> list[str]:
    mount_conflicts = MountConflicts(host)
    return [found.message for document in documents for found in mount_conflicts.add(document)]


def both_ways(one: dict[str, Any], other: dict[str, Any]) -> list[list[str]]:
    return [messages(*order) for order in itertools.permutations((one, other))]


def test_two_sources_at_one_path_are_reported_with_both_kinds() -> None:
    one, other = spec("a.com/gpu", ("/opt/a", "/usr/local/x")), spec("b.com/npu", ("/opt/b", "/usr/local/x"))
    mount_conflicts = MountConflicts()
    assert mount_conflicts.add(one) == ()
    (finding,) = mount_conflicts.add(other)
    assert finding.message == (
        "a.com/gpu and b.com/npu both mount /usr/local/x, from /opt/a and /opt/b: "
        "a container with both devices has only one of the mounts"
    )
    assert (finding.severity, finding.rule) == ("warning", "mounts-covered")
    assert finding.path == "$.containerEdits.mounts[0]"


def test_a_mount_of_a_device_is_reported_with_the_device() -> None:
    one = spec("a.com/gpu", ("/opt/a", "/x"))
    other = spec("b.com/npu", device=(("/opt/b", "/x/"),))
    assert messages(one, other)[0].startswith("a.com/gpu and b.com/npu=0 both mount /x")


def test_a_mount_inside_another_mount_is_reported_in_either_order() -> None:
    outer, inner = spec("a.com/gpu", ("/opt/a", "/x")), spec("b.com/npu", ("/opt/b/lib", "/x/y/lib"))
    for (message,) in both_ways(outer, inner):
        assert message == (
            "b.com/npu mounts /x/y/lib inside the mount /x of a.com/gpu: a container with both devices lacks "
            "files of the outer mount, or does not start"
        )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((("/opt/a", "/x"),), (("/opt/a", "/x"),)),
        ((("/opt/a", "/x"),), (("/opt/a", "/x/"),)),
        ((("/opt/a", "/x"),), (("/opt/a/y/z", "/x/y/z"),)),  # the outer mount has the same file
        ((("/opt/a", "/x"),), (("/opt/b", "/xy"),)),
        ((("/opt/a", "/x/a"),), (("/opt/b", "/x/b"),)),
        # Both kinds mount the same program of the driver, each from the view of the kind.
        (((f"{FIRST}/bin/smi", "/usr/bin/smi"),), ((f"{SECOND}/bin/smi", "/usr/bin/smi"),)),
        # The second kind mounts the same file from its original path.
        (((f"{FIRST}/bin/smi", "/usr/bin/smi"),), (("/usr/lib/driver/bin/smi", "/usr/bin/smi"),)),
        (((f"{FIRST}/fixed/usr/share/icd.json", "/icd"),), (("/usr/share/icd.json", "/icd"),)),
        # Each kind also mounts its whole view at another path, so the libraries of both kinds are present.
        (((FIRST, "/a"), (f"{FIRST}/lib64", HWCAPS)), ((SECOND, "/b"), (f"{SECOND}/lib64", HWCAPS))),
    ],
)
def test_harmless_mounts_are_not_reported(
    one: tuple[tuple[str, str], ...], other: tuple[tuple[str, str], ...]
) -> None:
    assert both_ways(spec("a.com/gpu", *one), spec("b.com/npu", *other)) == [[], []]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        # Two whole views at one path.
        (((FIRST, "/usr/local/nvidia"),), ((SECOND, "/usr/local/nvidia"),)),
        # The second kind mounts its files at no other path.
        (((FIRST, "/a"), (f"{FIRST}/lib64", HWCAPS)), (("/opt/b", HWCAPS),)),
        # The mounts of the whole views cover each other too.
        (((FIRST, "/a"), (FIRST, HWCAPS)), ((SECOND, "/a"), (SECOND, HWCAPS))),
        (((f"{FIRST}/lib64", HWCAPS),), ((f"{SECOND}/lib64", HWCAPS),)),
        (((f"{FIRST}/bin/smi", "/usr/bin/smi"),), (("/opt/other", "/usr/bin/smi"),)),
        (((f"{FIRST}/bin/smi", "/usr/bin/x"),), ((f"{SECOND}/bin/debugdump", "/usr/bin/x"),)),
        ((("/opt/a", "/"),), (("/opt/b", "/x"),)),
    ],
)
def test_mounts_that_hide_files_of_another_kind_are_reported(
    one: tuple[tuple[str, str], ...], other: tuple[tuple[str, str], ...]
) -> None:
    for messages in both_ways(spec("a.com/gpu", *one), spec("b.com/npu", *other)):
        assert len(messages) == 1


def test_a_tmpfs_that_covers_another_mount_is_reported() -> None:
    other = spec("b.com/npu", ("tmpfs", "/x"))
    other["containerEdits"]["mounts"][0]["type"] = "tmpfs"
    assert len(messages(spec("a.com/gpu", ("/opt/a", "/x/lib")), other)) == 1


def test_mounts_of_the_same_kind_are_not_compared() -> None:
    same = (spec("a.com/gpu", ("/opt/a", "/x")), spec("a.com/gpu", ("/opt/b", "/x")))
    assert messages(*same) == []
    third = spec("c.com/gpu", ("/opt/c", "/x"), ("/opt/c", "/y"))
    assert [
        message.split(" both")[0] for message in messages(same[0], spec("b.com/npu", ("/b", "/x")), third)
    ] == [
        "a.com/gpu and b.com/npu",
        "a.com/gpu and c.com/gpu",
        "b.com/npu and c.com/gpu",
    ]


def test_several_conflicts_of_two_kinds_are_one_finding() -> None:
    one = spec("a.com/gpu", *((f"/a/{name}", f"/x/{name}") for name in "abc"))
    other = spec("b.com/npu", *((f"/b/{name}", f"/x/{name}") for name in "abc"))
    (message,) = messages(one, other)
    assert message.endswith(" (and 2 more paths)")


def test_one_file_under_two_paths_of_the_host_is_one_source(tmp_path: Path) -> None:
    (tmp_path / "first").write_text("x")
    os.link(tmp_path / "first", tmp_path / "second")
    (tmp_path / "third").write_text("x")
    one = spec("a.com/gpu", ("/first", "/x"))
    host = Root(str(tmp_path))
    assert messages(one, spec("b.com/npu", ("/second", "/x")), host=host) == []
    assert len(messages(one, spec("b.com/npu", ("/third", "/x")), host=host)) == 1
    assert len(messages(one, spec("b.com/npu", ("/gone", "/x")), host=host)) == 1
    assert len(messages(one, spec("b.com/npu", ("/second", "/x")))) == 1


def test_two_files_with_one_name_are_copies_if_their_size_is_equal(tmp_path: Path) -> None:
    view = tmp_path / FIRST.lstrip("/") / "bin"
    view.mkdir(parents=True)
    (view / "smi").write_text("12345")
    (tmp_path / "copied").mkdir()
    (tmp_path / "copied/smi").write_text("12345")
    (tmp_path / "smi").write_text("another")
    one, host = spec("a.com/gpu", (f"{FIRST}/bin/smi", "/smi")), Root(str(tmp_path))
    assert messages(one, spec("b.com/npu", ("/copied/smi", "/smi")), host=host) == []
    assert len(messages(one, spec("b.com/npu", ("/smi", "/smi")), host=host)) == 1


def test_huge_specs_are_compared_only_up_to_the_limits() -> None:
    deep = "/x" * (MAX_LEVELS + 1)
    assert messages(spec("a.com/gpu", ("/a", deep)), spec("b.com/npu", ("/b", deep))) == []
    many = [
        spec(kind, *((f"/{kind}/{n}", f"/x/{n}") for n in range(20_000))) for kind in ("a.com/gg", "b.com/gg")
    ]
    assert len(messages(*many)) == 1
    crowd = [spec(kind, *((f"/{kind}/{n}", "/x") for n in range(5_000))) for kind in ("a.com/gg", "b.com/gg")]
    assert len(messages(*crowd)) == 1


def test_many_files_with_the_same_mounts_hide_no_conflict() -> None:
    mounts = tuple((f"/opt/lib{number}", f"/usr/lib/lib{number}") for number in range(200))
    files = [spec("a.com/gpu", *mounts)] * (2 * MAX_COMPARED // len(mounts))
    (message,) = messages(*files, spec("b.com/npu", *mounts[:-1], ("/opt/other", mounts[-1][1])))
    assert message.startswith(f"a.com/gpu and b.com/npu both mount {mounts[-1][1]}, ")


def test_both_sources_of_a_kind_at_one_path_are_compared() -> None:
    files = [spec("a.com/gpu", (source, "/x")) for source in ("/opt/a", "/opt/b")]
    (message,) = messages(*files, spec("b.com/npu", ("/opt/a", "/x")))
    assert "from /opt/b and /opt/a" in message
