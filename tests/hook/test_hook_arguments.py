"""The command line and the exit codes of the hook."""

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
def test_one_line_reports_invalid_arguments_and_no_step_is_run(case: Case, words: tuple[str, ...]) -> None:
    before = case.cache.read_bytes()
    done = case.start(*words, *LDCACHE)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("cdigen-hook: arguments: ")
    assert case.cache.read_bytes() == before


def test_an_unknown_step_is_skipped_and_the_other_steps_run(case: Case) -> None:
    done = case.start("--conjure", "a", "b", *LDCACHE)
    assert done.returncode == 0
    assert (
        done.stderr
        == "cdigen-hook: conjure: unknown step, skipped: this cdigen-hook is older than the spec\n"
    )
    assert ("libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1") in case.entries()


def test_a_required_unknown_step_stops_the_container(case: Case) -> None:
    assert case.start("--conjure", "--require", "conjure", *LDCACHE).returncode == 1


def test_the_hook_succeeds_if_a_required_step_is_not_among_its_steps(case: Case) -> None:
    assert case.start(*LDCACHE, "--require", "create-symlinks").returncode == 0


def test_without_arguments_the_hook_does_nothing_and_prints_nothing(case: Case) -> None:
    done = case.start()
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("required", "code"), [((), 0), (("--require", "update-ldcache"), 1)])
def test_a_failed_step_stops_the_container_only_if_the_step_is_required(
    case: Case, required: tuple[str, ...], code: int
) -> None:
    case.cache.unlink()
    case.cache.mkdir()
    done = case.start(*LDCACHE, *required)
    assert done.returncode == code
    assert done.stderr == (
        "cdigen-hook: update-ldcache: /etc/ld.so.cache: is a folder, not a regular file; "
        "the loader's cache does not list the driver's libraries\n"
    )


def test_the_other_steps_run_after_a_failed_step(case: Case) -> None:
    case.cache.unlink()
    case.cache.symlink_to("/nowhere")
    done = case.start(*LDCACHE, *LINKS, *PROFILE)
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    assert (case.root / "usr/lib/libcuda.so").is_symlink()


def test_every_step_has_a_text_about_the_effect_of_its_failure_and_every_abi_has_flags() -> None:
    assert set(main.CONSEQUENCES) == {*arguments.STEPS, "ld.so.conf.d"}
    assert set(ABIS) == arguments.ABIS
