"""create-symlinks: where a link is made, and where the image or the user has the word."""

from support.hook.container_root import Case

STEP = ("--create-symlinks", "libcuda.so.1", "/usr/lib/libcuda.so")


def test_a_link_is_made_with_the_text_that_was_given(case: Case) -> None:
    assert case.start(*STEP).stderr == ""
    assert str((case.root / "usr/lib/libcuda.so").readlink()) == "libcuda.so.1"


def test_a_second_start_finds_it_made(case: Case) -> None:
    case.start(*STEP)
    done = case.start(*STEP, "--require", "create-symlinks")
    assert (done.returncode, done.stderr) == (0, "")


def test_what_the_image_has_there_stays(case: Case) -> None:
    (case.root / "usr/lib/libcuda.so").write_bytes(b"the image's")
    assert case.start(*STEP).stderr == ""
    assert (case.root / "usr/lib/libcuda.so").read_bytes() == b"the image's"


def test_a_folder_that_the_image_lacks_is_not_made(case: Case) -> None:
    done = case.start("--create-symlinks", "libcuda.so.1", "/opt/lib/libcuda.so", "/usr/lib/libcuda.so")
    assert (done.returncode, done.stderr) == (0, "")
    assert not (case.root / "opt").exists()
    assert (case.root / "usr/lib/libcuda.so").is_symlink()


def test_a_link_in_the_root_itself_is_made(case: Case) -> None:
    case.start("--create-symlinks", "usr/lib", "/lib")
    assert str((case.root / "lib").readlink()) == "usr/lib"


def test_one_refused_link_does_not_keep_the_next_from_being_made(case: Case) -> None:
    (case.root / "lib").symlink_to("usr/lib")
    done = case.start("--create-symlinks", "libcuda.so.1", "/lib/libcuda.so", "/usr/lib/libcuda.so")
    assert done.stderr == (
        "cdigen-hook: create-symlinks: /lib: it is a link, which is not followed; this link is not made\n"
    )
    assert (case.root / "usr/lib/libcuda.so").is_symlink()
