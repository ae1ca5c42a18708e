"""The step create-symlinks creates links, and does not replace files of the image."""

from support.hook.container_root import Case

STEP = ("--create-symlinks", "libcuda.so.1", "/usr/lib/libcuda.so")


def test_the_target_of_a_link_is_exactly_the_text_of_the_argument(case: Case) -> None:
    assert case.start(*STEP).stderr == ""
    assert str((case.root / "usr/lib/libcuda.so").readlink()) == "libcuda.so.1"


def test_a_second_start_of_the_hook_keeps_the_link(case: Case) -> None:
    case.start(*STEP)
    done = case.start(*STEP, "--require", "create-symlinks")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_file_of_the_image_is_not_replaced_by_a_link(case: Case) -> None:
    (case.root / "usr/lib/libcuda.so").write_bytes(b"the image's")
    assert case.start(*STEP).stderr == ""
    assert (case.root / "usr/lib/libcuda.so").read_bytes() == b"the image's"


def test_a_missing_folder_is_not_created_for_a_link(case: Case) -> None:
    done = case.start("--create-symlinks", "libcuda.so.1", "/opt/lib/libcuda.so", "/usr/lib/libcuda.so")
    assert (done.returncode, done.stderr) == (0, "")
    assert not (case.root / "opt").exists()
    assert (case.root / "usr/lib/libcuda.so").is_symlink()


def test_a_link_in_the_root_folder_is_created(case: Case) -> None:
    case.start("--create-symlinks", "usr/lib", "/lib")
    assert str((case.root / "lib").readlink()) == "usr/lib"


def test_the_next_link_is_created_after_a_refused_link(case: Case) -> None:
    (case.root / "lib").symlink_to("usr/lib")
    done = case.start("--create-symlinks", "libcuda.so.1", "/lib/libcuda.so", "/usr/lib/libcuda.so")
    assert done.stderr == (
        "cdigen-hook: create-symlinks: /lib: is a link, which is not followed; this link is not created\n"
    )
    assert (case.root / "usr/lib/libcuda.so").is_symlink()
