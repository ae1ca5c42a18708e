"""A root that changes while the hook works on it: another process on the same root swaps folders with links.

The root is a folder of the host (podman run --rootfs), the only way in which somebody else may hold it while
a container starts. Names are exchanged by renameat2(2), which never leaves a gap.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from support.containers.gpu_hosts import DEVICE
from support.containers.hostile_images import OUTSIDE, Target, hook_lines

pytestmark = pytest.mark.e2e

ROOT = "/srv/shared/root"
# 'make soak' asks for more.
STARTS = int(os.environ.get("CDIGEN_SOAK_STARTS", "15"))
HOOKS = int(os.environ.get("CDIGEN_SOAK_HOOKS", "120"))

SWAP = """
import ctypes, os, sys
path, target = sys.argv[1:]
link = "/srv/shared/root/.link"
os.symlink(target, link)
rename = ctypes.CDLL(None).renameat2
swaps = 0
while not os.path.exists("/srv/shared/stop"):
    for _ in range(100):
        if rename(-100, path.encode(), -100, link.encode(), 2):
            sys.exit("cannot exchange")
        swaps += 1
    if not os.path.islink(path) and not os.path.islink(link):  # the hook has put a file in the link's place
        os.unlink(link)
        os.symlink(target, link)
print(swaps)
"""
# The hook as its spec says, on a bundle of that root, again and again, each time with something to write:
# COUNT times, and up to ten times as often where the swaps rarely came between, as on a busy machine.
START_HOOKS = """
import collections, json, os, subprocess, sys
hook, count = json.load(sys.stdin)
json.dump({"root": {"path": "root"}}, open("/srv/shared/config.json", "w"))
state = json.dumps({"bundle": "/srv/shared"}).encode()
env = dict(entry.split("=", 1) for entry in hook["env"])
said = collections.Counter()
for number in range(10 * count):
    linked = sum(times for line, times in said.items() if "link" in line)
    if number >= count and min(linked, said["done"]) > count // 20:
        break
    args = hook["args"][:5] + ["--update-ldcache", "x86_64", f"/opt/{number}", "libcuda.so.1",
                               "--create-symlinks", "libcuda.so.1", f"/usr/lib64/{number}.so"]
    done = subprocess.run(args, executable=hook["path"], input=state, capture_output=True, env=env)
    lines = done.stderr.decode().splitlines() or ["done"]
    said.update(line.partition("; ")[0] for line in lines)
    assert done.returncode == 0, lines
print(json.dumps(said))
"""
PLACES = ("/etc", "/etc/ld.so.cache", "/etc/ld.so.conf.d", "/usr/lib64")


@contextmanager
def swapping(target: Target, place: str) -> Iterator[None]:
    """Exchange PLACE of the shared root with a link to what has its name outside, until the context ends."""
    host = target.host
    host.run(
        f"""rm -rf /srv/shared; mkdir -p {ROOT}
        id=$(podman create localhost/debian-like true)
        cp -a "$(podman mount $id)/." {ROOT}; podman rm --force $id >/dev/null
        mkdir {ROOT}/evil; cp /run/canaries/* {ROOT}/evil"""
    )
    host.put("/srv/shared/swap.py", SWAP)
    host.run(
        f"setsid python3 /srv/shared/swap.py {ROOT}{place} {OUTSIDE}{place} "
        "</dev/null >/srv/shared/swaps 2>&1 & sleep 0.3"
    )
    yield
    # It prints how often it swapped when it ends, which may take a moment.
    swaps = host.run(
        "touch /srv/shared/stop; for i in $(seq 100); do sleep 0.1; [ -s /srv/shared/swaps ] && break; done; "
        "cat /srv/shared/swaps"
    )
    assert int(swaps) > 1000


@pytest.mark.parametrize("place", PLACES)
def test_a_hook_never_follows_what_is_swapped_while_it_runs(target: Target, place: str) -> None:
    spec = json.loads(target.host.run("cat /run/cdi/nvidia.com-gpu.json"))
    given = json.dumps([spec["containerEdits"]["hooks"][0], HOOKS])
    with target.untouched(), swapping(target, place):
        answer = target.host.run(f"python3 -c '{START_HOOKS}'", stdin=given, timeout_s=120)
    said = json.loads(answer)
    assert sum(count for line, count in said.items() if "link" in line) > HOOKS // 20
    assert said.get("done", 0) > HOOKS // 20


@pytest.mark.parametrize("place", PLACES)
def test_containers_start_or_fail_with_a_line_while_their_root_is_swapped(target: Target, place: str) -> None:
    run = f"podman run --rm --device {DEVICE} --rootfs {ROOT} /evil/program"
    with target.untouched(), swapping(target, place):
        answers = [target.host.attempt(run) for _ in range(STARTS)]
    failed = [answer.stderr for answer in answers if answer.returncode]
    assert all(answer.stdout == "started\n" for answer in answers if answer.returncode == 0)
    assert all(text.strip() for text in failed)
    assert not any(hook_lines(text) for text in failed)  # what it could not do stops no container
