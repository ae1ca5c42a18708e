"""The hook lines of a spec: one line of cdigen's hook, or NVIDIA's lines in a form that other tools parse."""

from cdigen.cdi.hooks import cdigen_hook, hook_lines, nvidia_hook
from cdigen.model.cdi import HookStep

STEPS = (
    HookStep(name="create-symlinks", arguments=("libcuda.so.1", "/usr/lib64/libcuda.so")),
    HookStep(name="create-symlinks", arguments=("libx.so.1", "/usr/lib64/libx.so", "/usr/lib/libx.so")),
    HookStep(name="enable-cuda-compat", arguments=("550.163.01",)),
    HookStep(name="update-ldcache", arguments=("x86_64", "/usr/lib64", "libcuda.so.1")),
    HookStep(name="update-ldcache", arguments=("i386", "/usr/lib", "libcuda.so.1")),
    HookStep(name="disable-device-node-modification"),
)
OURS = cdigen_hook("/usr/bin/python3", "/usr/libexec/cdigen/cdigen-hook")
NVIDIAS = nvidia_hook("/usr/bin/nvidia-cdi-hook")


def test_cdigens_hook_is_one_line_with_an_isolated_python() -> None:
    (hook,) = hook_lines(OURS, STEPS, ("update-ldcache",))
    assert (hook.hook_name, hook.path) == ("createContainer", "/usr/bin/python3")
    assert hook.args[:5] == ("/usr/bin/python3", "-I", "-S", "-B", "/usr/libexec/cdigen/cdigen-hook")
    assert hook.args[-3:] == ("--disable-device-node-modification", "--require", "update-ldcache")
    assert hook.timeout


def test_cdigens_hook_has_an_environment_without_loader_and_python_variables() -> None:
    (hook,) = hook_lines(OURS, STEPS, ())
    assert hook.env
    assert not [entry for entry in hook.env if entry.startswith(("LD_", "PYTHON"))]


def test_without_steps_there_is_no_hook() -> None:
    assert hook_lines(OURS, (), ("update-ldcache",)) == ()


def test_a_required_step_that_is_absent_is_not_in_the_command() -> None:
    (hook,) = hook_lines(OURS, STEPS[:1], ("update-ldcache",))
    assert "--require" not in hook.args


def test_nvidias_hooks_are_one_line_for_each_step_name() -> None:
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
