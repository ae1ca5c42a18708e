"""Valid and malformed inputs of the hook: the container's state on standard input, and config.json."""

import json
import os

import pytest
from support.hook.container_root import LDCACHE, VIEW, Case

MERGED = ("libcuda.so.1", f"{VIEW}/libcuda.so.1")


@pytest.mark.parametrize("absolute", [True, False], ids=["podman", "containerd"])
def test_the_root_in_config_json_can_be_an_absolute_or_relative_path(case: Case, *, absolute: bool) -> None:
    case.configure({"root": {"path": str(case.root) if absolute else "rootfs", "readonly": True}})
    done = case.start(*LDCACHE)
    assert (done.returncode, done.stderr) == (0, "")
    assert MERGED in case.entries()


def test_a_state_with_escaped_slashes_and_surrounding_white_space_is_read(case: Case) -> None:
    state = b"\n  " + case.state().replace(b"/", b"\\/") + b"\n"
    assert case.start(*LDCACHE, state=state).stderr == ""
    assert MERGED in case.entries()


@pytest.mark.parametrize(
    "state",
    [
        b"", b"null", b"[]", b"{", b"{} {}", b'{"bundle": 1}', b'{"bundle": "relative"}',
        b'{"bundle": "/nowhere"}', b'{"bundle": "/dev"}', b'{"bundle": "/\\u0000"}',
        b'{"bundle": "/\\ud800"}', b'{"bundle": "/' + b"x" * 5000 + b'"}', b"\xff\xfe", b"[" * 200_000,
        b'{"bundle": 1e999999, "x": NaN}', b"9" * 10_000, b" " * (5 << 20),
    ],
    ids=range(17),
)  # fmt: skip
@pytest.mark.parametrize(("required", "code"), [((), 0), (("--require", "update-ldcache"), 1)])
def test_a_malformed_state_or_a_state_without_a_usable_bundle_is_reported_in_one_line(
    case: Case, state: bytes, required: tuple[str, ...], code: int
) -> None:
    done = case.start(*LDCACHE, *required, state=state)
    assert (done.returncode, done.stderr.count("\n")) == (code, 1)
    assert done.stderr.startswith("cdigen-hook: container: ")


@pytest.mark.parametrize(
    "config",
    [
        [],
        {},
        {"root": "/"},
        {"root": {}},
        {"root": {"path": ""}},
        {"root": {"path": 7}},
        {"root": {"path": "nowhere"}},
        {"root": {"path": "config.json"}},
        {"root": {"path": "/"}},
        {"root": {"path": "/."}},
    ],
)
def test_a_config_json_without_a_valid_root_is_reported_in_one_line(case: Case, config: object) -> None:
    case.configure(config)
    done = case.start(*LDCACHE)
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)


def test_the_hosts_root_is_refused(case: Case) -> None:
    case.configure({"root": {"path": "/"}})
    done = case.start(*LDCACHE)
    assert (
        done.stderr == "cdigen-hook: container: /: the container's root is the host's root; no step is run\n"
    )


def test_a_fifo_in_place_of_config_json_does_not_block_the_hook(case: Case) -> None:
    (case.bundle / "config.json").unlink()
    os.mkfifo(case.bundle / "config.json")
    assert "not a regular file" in case.start(*LDCACHE).stderr


def test_a_config_json_of_two_gibibytes_is_refused(case: Case) -> None:
    os.truncate(case.bundle / "config.json", 2 << 30)
    assert "has more than 16777216 bytes" in case.start(*LDCACHE).stderr


def test_with_closed_output_descriptors_no_message_is_written_to_a_file_of_the_container(case: Case) -> None:
    done = os.spawnlp(
        os.P_WAIT, "sh", "sh", "-c", 'state=$1; shift; "$@" <"$state" >&- 2>&-', "sh",
        str(_saved(case)), *case.command("--conjure", *LDCACHE),
    )  # fmt: skip
    assert done == 0
    assert MERGED in case.entries()
    assert b"cdigen-hook" not in case.cache.read_bytes()


def _saved(case: Case) -> str:
    path = case.bundle / "state.json"
    path.write_text(json.dumps(json.loads(case.state())))
    return str(path)


# A script with the conditions in a user namespace: the hook cannot read config.json, because the engine's
# storage has the mode 0700. The container's root is a mount point.
CLOSED = """
chmod 0 "$root/../config.json"
mount --bind "$root" "$root"
caps=-dac_override,-dac_read_search
set -- setpriv --bounding-set=$caps --inh-caps=$caps "$@"
"""


@pytest.mark.usefixtures("own_mounts")
def test_with_an_unreadable_bundle_the_root_is_the_folder_in_which_runc_starts_the_hook(case: Case) -> None:
    done = case.start_mounted(CLOSED + 'cd "$root"', *LDCACHE)
    assert (done.returncode, done.stderr) == (0, "")
    assert MERGED in case.entries()


@pytest.mark.usefixtures("own_mounts")
def test_with_an_unreadable_bundle_the_root_is_read_from_the_state_that_crun_passes(case: Case) -> None:
    state = json.dumps({**json.loads(case.state()), "root": str(case.root)}).encode()
    done = case.start_mounted(CLOSED + "cd /", *LDCACHE, state=state)
    assert (done.returncode, done.stderr) == (0, "")
    assert MERGED in case.entries()


@pytest.mark.usefixtures("own_mounts")
@pytest.mark.parametrize("folder", ["/", '"$root/etc"', '"$root/.."'])
def test_with_an_unreadable_bundle_a_current_folder_that_is_no_mount_point_is_refused(
    case: Case, folder: str
) -> None:
    done = case.start_mounted(CLOSED + f"cd {folder}", *LDCACHE)
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    assert "no step is run" in done.stderr
    assert MERGED not in case.entries()
