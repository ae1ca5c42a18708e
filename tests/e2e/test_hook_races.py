"""The start-up hook runs while another process exchanges folders of the container's root with links.

The root is a folder of the host (podman run --rootfs). Only in such a root can another process change files
while a container starts. renameat2(2) exchanges two names atomically.
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
# 'make soak' sets a larger number.
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
    if not os.path.islink(path) and not os.path.islink(link):  # the hook replaced the link with a file
        os.unlink(link)
        os.symlink(target, link)
print(swaps)
"""
# Runs the hook of the spec COUNT times on a bundle with the shared root. Each run writes a file with a new
# name. If few runs met a link, as on a busy machine, the program runs the hook up to ten times COUNT.
START_HOOKS = """
import collections, json, os, subprocess, sys
hook, count = json.load(sys.stdin)
json.dump({"root": {"path": "root"}}, open("/srv/shared/config.json", "w"))
state = json.dumps({"bundle": "/srv/shared"}).encode()
env = dict(entry.split("=", 1) for entry in hook["env"])
outcomes = collections.Counter()
for number in range(10 * count):
    linked = sum(times for line, times in outcomes.items() if "link" in line)
    if number >= count and min(linked, outcomes["done"]) > count // 20:
        break
    args = hook["args"][:5] + ["--update-ldcache", "x86_64", f"/opt/{number}", "libcuda.so.1",
                               "--create-symlinks", "libcuda.so.1", f"/usr/lib64/{number}.so"]
    done = subprocess.run(args, executable=hook["path"], input=state, capture_output=True, env=env)
    lines = done.stderr.decode().splitlines() or ["done"]
    outcomes.update(line.partition("; ")[0] for line in lines)
    assert done.returncode == 0, lines
print(json.dumps(outcomes))
"""
PLACES = ("/etc", "/etc/ld.so.cache", "/etc/ld.so.conf.d", "/usr/lib64")


@contextmanager
def swapping(target: Target, place: str) -> Iterator[None]:
    """Until the context ends, exchange PLACE of the shared root repeatedly with a link to OUTSIDE/PLACE."""
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
    # The program prints the number of swaps when it ends, soon after the file "stop" exists.
    swaps = host.run(
        "touch /srv/shared/stop; for i in $(seq 100); do sleep 0.1; [ -s /srv/shared/swaps ] && break; done; "
        "cat /srv/shared/swaps"
    )
    assert int(swaps) > 1000


@pytest.mark.parametrize("place", PLACES)
def test_the_hook_never_follows_a_link_that_appears_while_it_runs(target: Target, place: str) -> None:
    spec = json.loads(target.host.run("cat /run/cdi/nvidia.com-gpu.json"))
    hook_and_count = json.dumps([spec["containerEdits"]["hooks"][0], HOOKS])
    with target.untouched(), swapping(target, place):
        answer = target.host.run(f"python3 -c '{START_HOOKS}'", stdin=hook_and_count, timeout_s=120)
    outcomes = json.loads(answer)
    assert sum(count for line, count in outcomes.items() if "link" in line) > HOOKS // 20
    assert outcomes.get("done", 0) > HOOKS // 20


@pytest.mark.parametrize("place", PLACES)
def test_containers_start_or_fail_with_a_message_while_their_root_changes(target: Target, place: str) -> None:
    run = f"podman run --rm --device {DEVICE} --rootfs {ROOT} /evil/program"
    with target.untouched(), swapping(target, place):
        answers = [target.host.attempt(run) for _ in range(STARTS)]
    failed = [answer.stderr for answer in answers if answer.returncode]
    assert all(answer.stdout == "started\n" for answer in answers if answer.returncode == 0)
    assert all(text.strip() for text in failed)
    assert not any(hook_lines(text) for text in failed)  # a failed step does not stop the container
