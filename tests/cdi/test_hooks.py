"""The hook lines: one of ours for everything, or NVIDIA's in the forms that other tools parse."""

from cdigen.cdi.hooks import cdigen_hook, hook_lines, nvidia_hook
from cdigen.model.cdi import Step

STEPS = (
    Step(name="create-symlinks", arguments=("libcuda.so.1", "/usr/lib64/libcuda.so")),
    Step(name="create-symlinks", arguments=("libx.so.1", "/usr/lib64/libx.so", "/usr/lib/libx.so")),
    Step(name="enable-cuda-compat", arguments=("550.163.01",)),
    Step(name="update-ldcache", arguments=("x86_64", "/usr/lib64", "libcuda.so.1")),
    Step(name="update-ldcache", arguments=("i386", "/usr/lib", "libcuda.so.1")),
    Step(name="disable-device-node-modification"),
)
OURS = cdigen_hook("/usr/bin/python3", "/usr/libexec/cdigen/cdigen-hook")
NVIDIAS = nvidia_hook("/usr/bin/nvidia-cdi-hook")


def test_our_hook_is_one_line_with_a_python_that_trusts_no_environment() -> None:
    (hook,) = hook_lines(OURS, STEPS, ("update-ldcache",))
    assert (hook.hook_name, hook.path) == ("createContainer", "/usr/bin/python3")
    assert hook.args[:5] == ("/usr/bin/python3", "-I", "-S", "-B", "/usr/libexec/cdigen/cdigen-hook")
    assert hook.args[-3:] == ("--disable-device-node-modification", "--require", "update-ldcache")
    assert hook.timeout


def test_our_hook_has_an_environment_of_its_own_without_names_that_loaders_or_python_read() -> None:
    (hook,) = hook_lines(OURS, STEPS, ())
    assert hook.env
    assert not [entry for entry in hook.env if entry.startswith(("LD_", "PYTHON"))]


def test_without_work_there_is_no_hook() -> None:
    assert hook_lines(OURS, (), ("update-ldcache",)) == ()


def test_what_is_required_but_not_done_is_not_asked_for() -> None:
    (hook,) = hook_lines(OURS, STEPS[:1], ("update-ldcache",))
    assert "--require" not in hook.args


def test_nvidias_hooks_are_a_line_for_each_with_their_known_arguments() -> None:
    lines = hook_lines(NVIDIAS, STEPS, ())
    assert [hook.args for hook in lines] == [
        (
            "nvidia-cdi-hook",
            "create-symlinks",
            *("--link", "libcuda.so.1::/usr/lib64/libcuda.so"),
            *("--link", "libx.so.1::/usr/lib64/libx.so"),
            *("--link", "libx.so.1::/usr/lib/libx.so"),
        ),
        ("nvidia-cdi-hook", "enable-cuda-compat", "--host-driver-version=550.163.01"),
        ("nvidia-cdi-hook", "update-ldcache", "--folder", "/usr/lib64", "--folder", "/usr/lib"),
        ("nvidia-cdi-hook", "disable-device-node-modification"),
    ]
    assert {(hook.path, hook.env) for hook in lines} == {
        ("/usr/bin/nvidia-cdi-hook", ("NVIDIA_CTK_DEBUG=false",))
    }
