"""`provision` makes damaged parts again, repeats a failed recipe once, and rejects a part that is a link."""

import os
import subprocess
from pathlib import Path

import pytest
from support.abilities import cannot_run
from support.paths import TESTS

pytestmark = pytest.mark.e2e

PROGRAM = ("e2e/provision", "e2e/test_images.py", "e2e/recipes", "e2e/dlopen-all.c", "support")
# These recipes replace the recipes of two parts: a tree, and a file that needs the tree.
TREE = '#!/bin/sh\nmkdir -p "$1/etc" && echo root >"$1/etc/passwd" && echo made "$1"\n'
FILE = '#!/bin/sh\ntest -f dlopen-all/etc/passwd && head -c 4096 /dev/zero >"$1"\n'
NEEDED, NEEDING = "dlopen-all", "image-debian.tar"


class Provision:
    """A copy of `provision` with fast recipes, and a cache folder for it."""

    def __init__(self, folder: Path) -> None:
        tests = folder / "program/tests"
        self.program = tests / "e2e"
        self.cache = folder / "cache"
        self.program.mkdir(parents=True)
        for name in PROGRAM:
            subprocess.run(["cp", "--recursive", TESTS / name, (tests / name).parent], check=True)
        self.recipe(NEEDED, TREE)
        self.recipe(NEEDING, FILE)

    def recipe(self, name: str, text: str) -> None:
        (self.program / "recipes" / name).write_text(text)

    def run(self, *options: str) -> subprocess.CompletedProcess[str]:
        command: list[str | Path] = [self.program / "provision", "--part", NEEDING, *options, self.cache]
        return subprocess.run(
            command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60
        )

    def make(self) -> str:
        done = self.run()
        assert done.returncode == 0, done.stdout
        return done.stdout


@pytest.fixture
def provision(tmp_path: Path) -> Provision:
    if os.geteuid() != 0:
        cannot_run("needs root")
    program = Provision(tmp_path)
    checked = program.run("--check").stdout
    if f": {NEEDED}, {NEEDING} (" not in checked:
        cannot_run(checked)
    return program


def test_parts_are_made_in_order_and_only_once(provision: Provision) -> None:
    assert f"{NEEDING}: made in" in provision.make()
    assert provision.run("--check").returncode == 0
    again = provision.make()
    assert "0 of 2 parts to make" in again
    assert f"up to date: {NEEDED}, {NEEDING}" in again


def test_a_part_is_made_a_second_time_if_its_recipe_failed(provision: Provision) -> None:
    tried = provision.cache / "tried"
    provision.recipe(NEEDED, f"{TREE.rstrip()} && {{ [ -e {tried} ] || {{ touch {tried}; exit 1; }}; }}\n")
    assert "dlopen-all: failed, a second attempt follows" in provision.make()


def test_a_recipe_that_fails_twice_is_reported_with_its_log(provision: Provision) -> None:
    provision.recipe(NEEDED, "#!/bin/sh\necho no route to the mirror\nexit 1\n")
    done = provision.run()
    assert done.returncode == 1
    assert "image-debian.tar: not made, it needs dlopen-all; 0 of 2 left" in done.stdout
    assert done.stdout.count("no route to the mirror") == 2
    assert "cannot run without driver-trixie, dlopen-all" in done.stdout


DAMAGES = {
    "etc was emptied": ("find dlopen-all/etc -mindepth 1 -delete", "./etc/passwd is missing"),
    "a file was written into": ("echo 'toor' >dlopen-all/etc/passwd", "./etc/passwd has changed"),
    "the tree is gone": ("rm -r dlopen-all", ""),
    "a file was added": ("touch dlopen-all/etc/shadow", "./etc/shadow is new"),
    "the archive was cut off": ("truncate --size 100 image-debian.tar", ". has changed"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_part_is_reported_and_made_again(provision: Provision, name: str) -> None:
    script, difference = DAMAGES[name]
    part = NEEDING if NEEDING in script else NEEDED
    condition = f"damaged: {difference}" if difference else "missing"
    provision.make()
    subprocess.run(["sh", "-euc", script], check=True, cwd=provision.cache)
    checked = provision.run("--check")
    assert checked.returncode == 1
    assert (f"{part} ({condition})" if difference else f": {part} (") in checked.stdout
    output = provision.make()
    assert f"{condition}, being made" in output
    assert "1 of 2 parts to make" in output
    assert provision.run("--check").returncode == 0


def test_a_part_that_is_a_symbolic_link_is_refused_and_its_target_stays(provision: Provision) -> None:
    provision.make()
    original = provision.cache.with_name("original")
    (provision.cache / NEEDED).rename(original)
    (provision.cache / NEEDED).symlink_to(original)
    for options in ((), ("--check",)):
        done = provision.run(*options)
        assert done.returncode == 1
        assert f"part {NEEDED} of the cache {provision.cache} is a symbolic link to {original}" in done.stdout
    assert (original / "etc/passwd").read_text() == "root\n"


def test_the_path_of_the_cache_may_be_a_symbolic_link(provision: Provision) -> None:
    link = provision.cache.with_name("link")
    link.symlink_to(provision.cache)
    provision.make()
    provision.cache, real = link, provision.cache
    (real / NEEDED / "etc/passwd").unlink()
    assert f"Provisioning {real}: 1 of 2" in provision.make()
