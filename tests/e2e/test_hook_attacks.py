"""Images that attack the hook, each with the real runtime: nothing outside of its root is touched.

Every attack is a change of a container's root. The host has a folder /outside, which stands for all that a
container must not reach; its files, and those of /etc and /usr, are the same afterwards. The container starts
where it starts without the GPU, and a profile that requires the step says in one line why it was not done.
"""

import base64
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from chroothost import REDHAT_IMAGE, Host
from gpuhosts import Driven
from test_layouts_volumes import files_of

pytestmark = pytest.mark.e2e

HERE = Path(__file__).resolve().parent

# Each is run in a container's root, in which /outside holds what the host's /outside holds: a link that is
# followed within the root leads to files, too.
LINKS = {
    "cache is an absolute link": "ln -sf /outside/etc/ld.so.cache etc/ld.so.cache",
    "cache is a relative link": "ln -sf ../../../../../outside/etc/ld.so.cache etc/ld.so.cache",
    "cache is a link through proc": "ln -sf /proc/self/root/outside/etc/ld.so.cache etc/ld.so.cache",
    "cache is a link to another process": "ln -sf /proc/1/root/outside/etc/ld.so.cache etc/ld.so.cache",
    "cache is a loop": "ln -sf ld.so.cache etc/ld.so.cache",
    "etc is an absolute link": "rm -r etc && ln -s /outside/etc etc",
    "etc is a relative link": "rm -r etc && ln -s ../../../../outside/etc etc",
    "ld.so.conf.d is a link": "rm -r etc/ld.so.conf.d && ln -s /outside/etc/ld.so.conf.d etc/ld.so.conf.d",
    "usr is a link": "mv usr outside/usr && ln -s /outside/usr usr",
    "library folder is a link": "mv usr/lib64 outside/lib && ln -s /outside/lib usr/lib64",
    "other library folder is a link": "mkdir outside/lib && ln -s /outside/lib usr/lib/x86_64-linux-gnu",
    "library folder is a link through proc": "ln -s /proc/self/root/outside/lib usr/lib/x86_64-linux-gnu",
}
NO_FILES = {
    "cache is a FIFO": "rm etc/ld.so.cache && mkfifo etc/ld.so.cache",
    "cache is an endless device": "rm etc/ld.so.cache && mknod etc/ld.so.cache c 1 5",
    "cache is a folder": "rm etc/ld.so.cache && mkdir etc/ld.so.cache",
    "ld.so.conf.d is a FIFO": "rm -r etc/ld.so.conf.d && mkfifo etc/ld.so.conf.d",
    "ld.so.conf.d is a file": "rm -r etc/ld.so.conf.d && touch etc/ld.so.conf.d",
}
CACHES = {
    "of zero bytes": ": >etc/ld.so.cache",
    "of 2 GiB": "truncate -s 2G etc/ld.so.cache",
    "that claims 4 billion entries": "poke 20 '\\377\\377\\377\\377'",
    "that claims strings of 2 GiB": "poke 24 '\\377\\377\\377\\177'",
    "whose names lie beyond its end": "poke 52 '\\377\\377\\377\\177'",
    "whose names lie before its strings": "poke 52 '\\0\\0\\0\\0'",
    "whose extension lies beyond its end": "poke 32 '\\374\\377\\377\\177'",
    "whose extension is its header": "poke 32 '\\4\\0\\0\\0'",
    "without an end of its last string": "tr '\\0' x <etc/ld.so.cache >c; head -c 48 etc/ld.so.cache >d; "
    "tail -c +49 c >>d; mv d etc/ld.so.cache",
    "of 16 MiB of nothing": "truncate -s 16M etc/ld.so.cache",
    "of another byte order": "poke 28 '\\3'",
    **{
        f"cut at {size}": f"truncate -s {size} etc/ld.so.cache"
        for size in (1, 19, 20, 47, 48, 49, 60, 500, 1500)
    },
}
COMPAT = {
    "of 8 GiB": "truncate -s 8G {library}",
    "that is a FIFO": "mkfifo {library}",
    "that is an endless device": "mknod {library} c 1 5",
    "that is a link out of the root": "ln -s /outside/libcuda.so.999.99 {library}",
    "that is no ELF": "echo hello >{library}",
    "whose sections lie beyond its end": "head -c 4096 usr/lib64/libm.so.6 >{library}",
    "of a thousand names": "for n in $(seq 1000); do : >{folder}/libcuda.so.999.$n; done",
}
POKE = 'poke() { printf "$2" | dd of=etc/ld.so.cache bs=1 seek=$1 conv=notrunc status=none; }'


@pytest.fixture(scope="module")
def target(driven: Callable[[str], Driven]) -> Host:
    """Return a host with the profile of the view, one that requires its steps, and a root to spoil."""
    host = driven("view+hook").host
    spec = json.loads(host.run("cat /run/cdi/nvidia.com-gpu.json"))
    spec["kind"] = "example.com/required"
    required = ("update-ldcache", "create-symlinks", "enable-cuda-compat")
    spec["containerEdits"]["hooks"][0]["args"] += [word for name in required for word in ("--require", name)]
    host.put("/etc/cdi/required.json", json.dumps(spec))
    host.run(
        f"""mkdir -p /outside /roots
        id=$(podman create {REDHAT_IMAGE} true)
        cp -a $(podman mount $id) /roots/clean && podman rm $id >/dev/null
        cp -a /roots/clean/etc /outside/etc
        cp -a /roots/clean/usr/lib64/libm.so.6 /outside/libcuda.so.999.99
        mkdir -p /outside/lib /outside/usr /roots/clean/outside
        cp -a /outside/etc /outside/libcuda.so.999.99 /roots/clean/outside"""
    )
    return host


def spoil(host: Host, attack: str) -> None:
    """Make /roots/spoilt: a clean root, in which a script is run."""
    host.run(f"rm -rf /roots/spoilt && cp -a /roots/clean /roots/spoilt\ncd /roots/spoilt\n{POKE}\n{attack}")


def start(
    host: Host, command: str, *, device: str = "nvidia.com/gpu=0", options: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a command in the spoilt root; no start takes as long as a hook that reads without end."""
    given = f"--device {device}" if device else ""
    return host.attempt(f"podman run --rm {given} {options} --rootfs /roots/spoilt {command}", timeout_s=8)


def outside(host: Host) -> dict[str, tuple[str, ...]]:
    """Return the state of all that the container must not touch."""
    listed = host.run("find /outside /pwned -printf '%p %y %m %s %n %T@ %C@ %l\\n' 2>/dev/null || true")
    return {
        **files_of(host),
        **{line.split(" ", 1)[0]: tuple(line.split(" ")[1:]) for line in listed.splitlines()},
    }


def assert_harmless(host: Host, attack: str, command: str = "echo started") -> str:
    """Start the spoilt root without the GPU and with it; return what the profile with required steps says."""
    spoil(host, attack)
    plain = start(host, command, device="")
    spoil(host, attack)
    before = outside(host)

    answer = start(host, command)
    assert (answer.returncode, answer.stdout) == (plain.returncode, plain.stdout), answer.stderr
    assert outside(host) == before

    spoil(host, attack)
    required = start(host, command, device="example.com/required=0")
    assert outside(host) == before
    assert required.returncode == 0 or "cdigen-hook: " in required.stderr or plain.returncode != 0
    return required.stderr


@pytest.mark.parametrize("attack", LINKS)
def test_a_link_out_of_the_root_is_refused(target: Host, attack: str) -> None:
    said = assert_harmless(target, LINKS[attack])
    if attack != "ld.so.conf.d is a link":  # which the container can start without
        assert "cdigen-hook: " in said


@pytest.mark.parametrize("attack", NO_FILES)
def test_what_is_no_file_is_not_opened(target: Host, attack: str) -> None:
    said = assert_harmless(target, NO_FILES[attack])
    if attack.startswith("cache"):
        assert "cdigen-hook: update-ldcache: " in said


@pytest.mark.parametrize("damage", CACHES)
def test_a_damaged_cache_does_no_harm(target: Host, damage: str) -> None:
    assert_harmless(target, CACHES[damage], "dlopen-all libm.so.6 libX11.so.6")


@pytest.mark.parametrize("library", COMPAT)
def test_a_spoilt_compatibility_library_leaves_the_hosts_in_charge(target: Host, library: str) -> None:
    folder = "usr/local/cuda/compat"
    attack = f"mkdir -p {folder}\n" + COMPAT[library].format(
        folder=folder, library=f"{folder}/libcuda.so.999.99"
    )
    assert_harmless(target, attack)
    loaded = start(target, "dlopen-all libcuda.so.1")
    assert loaded.stdout == "ok /usr/local/nvidia/lib64/libcuda.so.550.163.01\n"


# A hook's current folder is the container's root (runc), so relative paths lead into the image.
ENVIRONMENT = {
    "preloaded library": "--env LD_PRELOAD=./evil.so",
    "preloaded library of the current folder": "--env LD_PRELOAD=/proc/self/cwd/evil.so",
    "library path": "--env LD_LIBRARY_PATH=evil --env LD_AUDIT=./evil.so",
    "Python's path": "--env PYTHONPATH=evil --env PYTHONSTARTUP=evil/os.py --env PYTHONINSPECT=1",
    "Python's home": "--env PYTHONHOME=evil",
    "modules in the current folder": "",
}


@pytest.mark.parametrize("environment", ENVIRONMENT)
def test_nothing_of_the_image_is_run_by_the_hook(target: Host, tmp_path: Path, environment: str) -> None:
    set_traps(target, tmp_path)
    before = outside(target)
    start(target, "true", options=ENVIRONMENT[environment])
    assert outside(target) == before
    listed = target.run("ldconfig -p -C /roots/spoilt/etc/ld.so.cache")
    assert "libcuda.so.1 " in listed  # the hook did its work


@pytest.mark.parametrize("environment", ["preloaded library", "Python's path"])
def test_a_careless_hook_falls_into_the_traps(target: Host, tmp_path: Path, environment: str) -> None:
    """What the test before is worth: a hook without env gets the image's environment (CVE-2025-23266)."""
    edits = {
        "hooks": [{"hookName": "createContainer", "path": "/usr/bin/python3", "args": ["python3", "-c", ""]}]
    }
    spec = {"cdiVersion": "0.5.0", "kind": "example.com/careless", "containerEdits": edits}
    device = {"name": "0", "containerEdits": {"env": ["CARELESS=1"]}}
    target.put("/etc/cdi/careless.json", json.dumps({**spec, "devices": [device]}))
    set_traps(target, tmp_path)
    start(target, "true", options=ENVIRONMENT[environment], device="example.com/careless=0")
    target.run("rm -r /pwned /etc/cdi/careless.json")


def set_traps(host: Host, work: Path) -> None:
    """Make a root with libraries and modules that leave a trace, under all names that could be loaded."""
    library = work / "evil.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, HERE / "evil.c"], check=True)
    code = base64.b64encode(library.read_bytes()).decode()
    modules = "os posix sys _stat _json json cdigen encodings sitecustomize site"
    spoil(
        host,
        f"""base64 -d <<<'{code}' >evil.so
        mkdir -p evil/lib/python3.13
        for folder in . evil evil/lib/python3.13; do
            for name in {modules}; do
                mkdir -p $folder/$name
                echo '__import__("posix").mkdir("/pwned")' | tee $folder/$name.py >$folder/$name/__init__.py
            done
        done
        for name in libc.so.6 libm.so.6 libz.so.1 libexpat.so.1; do cp evil.so evil/$name; done""",
    )


def test_what_is_swapped_while_the_hook_runs_leads_nowhere(target: Host) -> None:
    """The cache and ld.so.conf.d are links now and files then, many times in every start."""
    spoil(target, "cp -a etc/ld.so.cache file; cp -a etc/ld.so.conf.d folder")
    swap = """
import os
os.chdir("/roots/spoilt/etc")
os.symlink("/outside/etc/ld.so.cache", "cache-link")
os.symlink("/outside/etc/ld.so.conf.d", "conf-link")
while not os.path.exists("/roots/stop"):
    for name, link in (("ld.so.cache", "cache-link"), ("ld.so.conf.d", "conf-link")):
        os.rename(name, "aside")
        os.rename(link, name)
        os.rename(name, link)
        os.rename("aside", name)
"""
    before = outside(target)
    target.run(f"rm -f /roots/stop; setsid python3 -c '{swap}' </dev/null >/dev/null 2>/roots/swap.log &")
    answers = [start(target, "true") for _ in range(30)]
    target.run("touch /roots/stop; sleep 0.2; [ ! -s /roots/swap.log ]")
    assert [answer.returncode for answer in answers] == [0] * 30
    assert outside(target) == before
