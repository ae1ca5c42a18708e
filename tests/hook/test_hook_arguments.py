"""The command line of the hook, and what the runtime learns from its exit code."""

import pytest
from support.hook.container_root import LDCACHE, LINKS, PROFILE, Case

from cdigen.binfmt.ldcache import ABIS
from cdigen.hook import arguments, main


@pytest.mark.parametrize(
    "words",
    [
        ("libcuda.so.1",),
        ("--update-ldcache",),
        ("--update-ldcache", "x86_64", "/lib"),
        ("--update-ldcache", "ppc64le", "/lib", "libcuda.so.1"),
        ("--update-ldcache", "x86_64", "lib", "libcuda.so.1"),
        ("--update-ldcache", "x86_64", "/lib/../etc", "libcuda.so.1"),
        ("--update-ldcache", "x86_64", "/lib//x", "libcuda.so.1"),
        ("--update-ldcache", "x86_64", "/", "libcuda.so.1"),
        ("--update-ldcache", "x86_64", "/a b", "libcuda.so.1"),
        ("--update-ldcache", "x86_64", "/lib", "a/libcuda.so.1"),
        ("--update-ldcache", "x86_64", "/lib", ""),
        ("--update-ldcache", "x86_64", "/lib", "a\nb"),
        ("--update-ldcache", "x86_64", "/lib", "x" * 4097),
        ("--create-symlinks", "libcuda.so.1"),
        ("--create-symlinks", "libcuda.so.1", "/lib/../libcuda.so"),
        ("--create-symlinks", "libcuda.so.1", "libcuda.so"),
        ("--enable-cuda-compat",),
        ("--enable-cuda-compat", "550.1", "560.1"),
        ("--disable-device-node-modification", "x"),
        ("--require",),
        ("--newer-step", "x\x1by"),
        ("--update-ldcache", *["x"] * 9000),
    ],
)
def test_malformed_arguments_are_one_line_and_nothing_is_done(case: Case, words: tuple[str, ...]) -> None:
    before = case.cache.read_bytes()
    done = case.start(*words, *LDCACHE)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("cdigen-hook: arguments: ")
    assert case.cache.read_bytes() == before


def test_a_step_of_a_newer_spec_is_left_out_and_the_others_run(case: Case) -> None:
    done = case.start("--conjure", "a", "b", *LDCACHE)
    assert done.returncode == 0
    assert (
        done.stderr == "cdigen-hook: conjure: this cdigen-hook is too old to know the step; it is left out\n"
    )
    assert ("libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1") in case.entries()


def test_a_required_step_of_a_newer_spec_stops_the_container(case: Case) -> None:
    assert case.start("--conjure", "--require", "conjure", *LDCACHE).returncode == 1


def test_a_required_step_that_is_not_asked_for_fails_nobody(case: Case) -> None:
    assert case.start(*LDCACHE, "--require", "create-symlinks").returncode == 0


def test_without_arguments_nothing_is_done_and_nothing_said(case: Case) -> None:
    done = case.start()
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("required", "code"), [((), 0), (("--require", "update-ldcache"), 1)])
def test_a_failed_step_stops_the_container_only_if_required(
    case: Case, required: tuple[str, ...], code: int
) -> None:
    case.cache.unlink()
    case.cache.mkdir()
    done = case.start(*LDCACHE, *required)
    assert done.returncode == code
    assert done.stderr == (
        "cdigen-hook: update-ldcache: /etc/ld.so.cache: it is a folder, not a regular file; "
        "the loader's cache does not list the driver's libraries\n"
    )


def test_a_failed_step_does_not_keep_the_others_from_running(case: Case) -> None:
    case.cache.unlink()
    case.cache.symlink_to("/nowhere")
    done = case.start(*LDCACHE, *LINKS, *PROFILE)
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    assert (case.root / "usr/lib/libcuda.so").is_symlink()


def test_every_step_has_a_consequence_and_every_abi_its_flags() -> None:
    assert set(main.CONSEQUENCES) == {*arguments.STEPS, "ld.so.conf.d"}
    assert set(ABIS) == arguments.ABIS
