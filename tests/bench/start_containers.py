"""Measure the cost of a GPU at a container's start: ``podman run`` without a GPU, and with each layout.

``make bench-start`` runs it, as root, with the results of ``make provision``: a Debian 13 host with a real
driver and podman, a small image, and an image with 5,000 libraries. Each round runs all variants once, in
random order, so that a change of the machine's speed affects all variants. The output has the medians, their
difference to a plain start with a 95 % interval (bootstrap over rounds), and their ratio to a plain start.

If NVIDIA's toolkit is in PATH, or in the folder of --toolkit, its spec is one of the variants.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS.parent)]

from bench import toolkit
from bench.installed import REPOSITORY
from bench.tables import parser
from support.containers.chroot_host import DEBIAN_IMAGE, MANY_IMAGE, Host, running_host
from support.containers.gpu_hosts import generate, install_hook
from support.hosts.nvidia_kernel import example_gpus, write_kernel_side
from support.own_trees import copy_tree

# 12 device nodes in all: 8 GPUs and four control nodes, without DRM.
GPUS = tuple(replace(gpu, card=None, render=None) for gpu in example_gpus(8))
IMAGES = {"small image": DEBIAN_IMAGE, "5,000 libraries": MANY_IMAGE}
LAYOUTS = {
    "files": ("files", "none"),
    "files + hook": ("files", "cdigen"),
    "view + hook": ("view", "cdigen"),
    "hwcaps": ("hwcaps", "none"),
    "default": ("auto", "auto"),
}
PLAIN = "plain"
NODES = "device nodes only"
TOOLKIT = "nvidia-ctk"

# Goals of the default profile: the ratio to a plain start, and the fraction of the toolkit's overhead.
RATIO_GOALS = {"small image": 1.20, "5,000 libraries": 1.30}
TOOLKIT_GOALS = {"small image": 0.25, "5,000 libraries": 0.10}
HOOKLESS_GOAL = 0.20
HOOK_GOAL = 11 / 6.4
RESAMPLES = 2000
CACHE_ENTRIES = 1000

# A program for the host's Python. It reads a list of rounds, and writes the seconds of each variant. /etc/cdi
# has the spec of only one variant at a time, because podman reads all specs.
TIMER = """
import json, shutil, subprocess, sys, time
plan = json.load(sys.stdin)
times = {name: [] for name in plan["commands"]}
for names in plan["rounds"]:
    for name in names:
        command, specs, before = plan["commands"][name]
        if specs:
            shutil.copy(specs, "/etc/cdi/nvidia.json")
        if before:
            subprocess.run(before, check=True)
        with open(plan["stdin"]) as given:
            begin = time.perf_counter()
            done = subprocess.run(command, stdin=given, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            end = time.perf_counter()
        if done.returncode:
            sys.exit(f"{command} ended with {done.returncode}: {done.stderr.decode()}")
        times[name].append(end - begin)
json.dump(times, sys.stdout)
"""

# A script that creates a container's root with 1,000 entries in its cache, and prints podman's config.json.
HOOK_FOLDERS = """
mkdir -p /hook/root/etc/ld.so.conf.d /hook/root/usr/lib/x86_64-linux-gnu
id=$(podman create {many} true)
podman cp $id:/opt/many/lib /hook/all && podman rm $id >/dev/null
mkdir -p /hook/root/opt/many/lib && cp /hook/all/libmany00???.so.1 /hook/root/opt/many/lib
echo 'include /etc/ld.so.conf.d/*.conf' >/hook/root/etc/ld.so.conf
echo /opt/many/lib >/hook/root/etc/ld.so.conf.d/many.conf
ldconfig -r /hook/root && cp /hook/root/etc/ld.so.cache /hook/ld.so.cache
cp {spec} /etc/cdi/nvidia.json
id=$(podman create --device nvidia.com/gpu=all {image} true) && podman init $id >/dev/null
cat "$(podman inspect --format '{{{{.OCIConfigPath}}}}' $id)" && podman rm --force --time 0 $id >/dev/null
"""


def main() -> None:
    """Run the benchmark; prints tables or JSON."""
    arguments = parser(__doc__)
    arguments.add_argument("--rounds", type=int, default=25, help="starts of each variant (default: 25)")
    toolkit.add_option(arguments)
    options = arguments.parse_args()
    peer = toolkit.find(options.toolkit)
    cache = Path(os.environ.get("CDIGEN_E2E_CACHE") or REPOSITORY / ".e2e").absolute()
    check = subprocess.run([TESTS / "e2e/provision", "--check"], check=False, capture_output=True, text=True)
    if check.returncode:
        sys.exit(check.stdout.strip() or check.stderr.strip())
    with tempfile.TemporaryDirectory(prefix="bench-", dir=cache) as folder:
        root = Path(folder) / "root"
        variants = _make_host(root, cache / "driver-trixie", peer)
        with running_host(root, images=cache / "images") as host:
            host.run("rm -rf /etc/cdi /run/cdi && mkdir /etc/cdi")
            tables = {
                title: _table(_starts(host, image, variants, options.rounds), PLAIN)
                for title, image in IMAGES.items()
            }
            hook = _table(_hook_alone(host, root, options.rounds), "python3 -I -S -c pass")
    if options.json:
        print(json.dumps({**tables, "the hook alone": hook}, indent=2))
        return
    for title, rows in tables.items():
        _print(title, rows)
        _print_goals(title, {str(row["variant"]): row for row in rows})
    _print(f"the hook alone, {CACHE_ENTRIES:,} entries", hook)
    print(f"goal: the hook at most {HOOK_GOAL:.2f} of bare Python; it is {hook[-1]['ratio']:.2f}")


def _make_host(root: Path, tree: Path, peer: toolkit.Toolkit | None) -> dict[str, str]:
    """Create the host's root; return the path of the spec of each variant."""
    copy_tree(tree, root)
    write_kernel_side(root, GPUS)
    install_hook(root)
    specs: dict[str, str] = {}
    for name, (layout, hook) in LAYOUTS.items():
        generate(root, "--write", "--layout", layout, "--hook", hook)
        written = root / "run/cdi/nvidia.com-gpu.json"
        specs[name] = written.read_text()
        written.unlink()
    nodes = _nodes_only(specs["files"])
    specs = {PLAIN: nodes, NODES: nodes, **specs}
    if peer is not None:
        specs[TOOLKIT] = toolkit_spec(root, peer)
    (root / "specs").mkdir()
    for number, text in enumerate(specs.values()):
        (root / f"specs/{number}.json").write_text(text)
    return {name: f"/specs/{number}.json" for number, name in enumerate(specs)}


def _nodes_only(spec: str) -> str:
    document = json.loads(spec)
    nodes = document["containerEdits"]["deviceNodes"]
    return json.dumps({**document, "containerEdits": {"deviceNodes": nodes}})


def toolkit_spec(root: Path, peer: toolkit.Toolkit) -> str:
    """Copy the programs of PEER into the host at ROOT; return the spec that they generate for this host."""
    for program in (peer.ctk, peer.hook):
        shutil.copy(program, root / "usr/bin")
    with toolkit.answering(root, GPUS):
        command = ("chroot", str(root), *peer.generate(program=f"/usr/bin/{peer.ctk.name}"))
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"nvidia-ctk cdi generate ended with {done.returncode}: {done.stderr}")
    return done.stdout


def _starts(host: Host, image: str, variants: dict[str, str], rounds: int) -> dict[str, list[float]]:
    """Start containers of IMAGE; return the seconds of each start."""
    run = ["podman", "run", "--rm", "--network", "none"]
    device = ["--device", "nvidia.com/gpu=all"]
    commands = {
        name: ([*run, *([] if name == PLAIN else device), image, "true"], specs, None)
        for name, specs in variants.items()
    }
    return _time(host, commands, rounds)


def _hook_alone(host: Host, root: Path, rounds: int) -> dict[str, list[float]]:
    """Start the hook as runc does, and bare Python; return the seconds of each start."""
    number = 2 + list(LAYOUTS).index("view + hook")
    spec = json.loads((root / f"specs/{number}.json").read_text())
    hook = spec["containerEdits"]["hooks"][0]
    folders = HOOK_FOLDERS.format(many=MANY_IMAGE, image=DEBIAN_IMAGE, spec=f"/specs/{number}.json")
    config = json.loads(host.run(folders))
    config["root"]["path"] = "/hook/root"
    host.put("/hook/config.json", json.dumps(config))
    host.put("/hook/state.json", json.dumps({"ociVersion": "1.2.0", "id": "bench", "bundle": "/hook"}))
    environment = ["env", "-i", *hook["env"]]
    restore = ["cp", "/hook/ld.so.cache", "/hook/root/etc/ld.so.cache"]
    commands = {
        "python3 -I -S -c pass": ([*environment, hook["path"], "-I", "-S", "-c", "pass"], "", None),
        "cdigen-hook": ([*environment, hook["path"], *hook["args"][1:]], "", restore),
    }
    times = _time(host, commands, 4 * rounds, stdin="/hook/state.json")
    listed = host.run("ldconfig -p -C /hook/root/etc/ld.so.cache")
    if "libcuda.so.1 " not in listed or listed.count("=>") <= CACHE_ENTRIES:
        sys.exit(f"the hook did not do its work: {listed[-500:]}")
    return times


def _time(
    host: Host,
    commands: Mapping[str, tuple[list[str], str, list[str] | None]],
    rounds: int,
    stdin: str = "/dev/null",
) -> dict[str, list[float]]:
    warm_up = [list(commands)]
    orders = [random.sample(list(commands), len(commands)) for _ in range(rounds)]
    plan = {"commands": commands, "rounds": warm_up + orders, "stdin": stdin}
    done = host.run(f"python3 -I -c '{TIMER}'", stdin=json.dumps(plan), timeout_s=3600)
    times: dict[str, list[float]] = json.loads(done)
    return {name: values[len(warm_up) :] for name, values in times.items()}


def _table(times: dict[str, list[float]], base: str) -> list[dict[str, object]]:
    """Return a row for each variant, which compares its starts with the starts of BASE in the same rounds."""
    plain = statistics.median(times[base])
    rows: list[dict[str, object]] = []
    for name, values in times.items():
        median = statistics.median(values)
        low, high = _interval(values, times[base])
        rows.append({
            "variant": name,
            "median_ms": round(median * 1000, 1),
            "above_ms": round((median - plain) * 1000, 1),
            "low_ms": round(low * 1000, 1),
            "high_ms": round(high * 1000, 1),
            "ratio": round(median / plain, 3),
        })  # fmt: skip
    return rows


def _interval(values: list[float], base: list[float]) -> tuple[float, float]:
    """Return the 95 % interval of the difference of medians, by resampling the rounds."""
    chance = random.Random(0)
    rounds = range(len(values))
    differences = []
    for _ in range(RESAMPLES):
        drawn = chance.choices(rounds, k=len(values))
        differences.append(
            statistics.median([values[i] for i in drawn]) - statistics.median([base[i] for i in drawn])
        )
    differences.sort()
    return differences[int(0.025 * RESAMPLES)], differences[int(0.975 * RESAMPLES)]


def _print(title: str, rows: list[dict[str, object]]) -> None:
    width = max(len(title), *(len(str(row["variant"])) for row in rows))
    print(f"{title:{width}}  median ms  above ms  95 % interval  ratio")
    for row in rows:
        interval = f"{row['low_ms']} .. {row['high_ms']}"
        print(
            f"{row['variant']:{width}}  {row['median_ms']:9}  {row['above_ms']:8}  {interval:>13}"
            f"  {row['ratio']:5.2f}"
        )
    print()


def _print_goals(title: str, rows: dict[str, dict[str, object]]) -> None:
    print(f"goal: the default at most {RATIO_GOALS[title]:.2f}; it is {rows['default']['ratio']:.2f}")
    if TOOLKIT in rows:
        above = {name: float(str(row["above_ms"])) for name, row in rows.items()}
        for name, goal in (
            ("default", TOOLKIT_GOALS[title]),
            ("files", HOOKLESS_GOAL),
            ("hwcaps", HOOKLESS_GOAL),
        ):
            part = above[name] / above[TOOLKIT]
            print(f"goal: {name} at most {goal:.2f} of nvidia-ctk's overhead; it is {part:.2f}")
    print()


if __name__ == "__main__":
    main()
