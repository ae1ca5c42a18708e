from __future__ import annotations

from cdigen.host.root import Root
from cdigen.runtimes.units import Command, command, unit_values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from support.hosts.runtime_config import Tree

UNIT = "/usr/lib/systemd/system/x.service"


def line(tree: Tree) -> Command:
    return command(Root(str(tree.folder)), "x.service")


def test_without_a_unit_the_command_is_empty(tree: Tree) -> None:
    assert line(tree) == Command()


def test_dependencies_of_drop_ins_are_added(tree: Tree) -> None:
    tree.put(UNIT, "[Unit]\nBefore=a.service b.service\nBefore=c.service\n[Service]\nBefore=no.service\n")
    tree.put(
        "/etc/systemd/system/x.service.d/more.conf", "[Unit]\nBefore=\nBefore=d.service\nAfter=e.service\n"
    )
    host = Root(str(tree.folder))
    assert unit_values(host, "x.service", "Before") == ("a.service", "b.service", "c.service", "d.service")
    assert unit_values(host, "y.service", "Before") == ()


def test_the_words_are_the_arguments_of_the_program(tree: Tree) -> None:
    tree.put(
        UNIT, "[Unit]\nExecStart=/no\n[Service]\n# ExecStart=/no\nExecStart=-/bin/x --a=1 \\\n  --b '2 3'\n"
    )
    assert line(tree) == Command(words=("--a=1", "--b", "2 3"), file=UNIT, program="/bin/x")


def test_a_unit_in_etc_replaces_the_unit_of_the_package(tree: Tree) -> None:
    tree.put(UNIT, "[Service]\nExecStart=/bin/x old\n")
    tree.put("/etc/systemd/system/x.service", "[Service]\nExecStart=/bin/x new\n")
    assert line(tree).words == ("new",)


def test_drop_ins_apply_by_name_and_a_drop_in_in_etc_hides_drop_ins_of_equal_name(tree: Tree) -> None:
    tree.put(UNIT, "[Service]\nExecStart=/bin/x old\n")
    tree.put(f"{UNIT}.d/10.conf", "[Service]\nExecStart=\nExecStart=/bin/x hidden\n")
    tree.put("/etc/systemd/system/x.service.d/10.conf", "[Service]\nEnvironment=A=1 'B=2 3'\n")
    tree.put("/run/systemd/system/x.service.d/20.conf", "[Service]\nExecStart=\nExecStart=/bin/x run ${B}\n")
    tree.put("/etc/systemd/system/x.service.d/30.txt", "[Service]\nExecStart=/bin/x no\n")
    assert line(tree).words == ("run", "2 3")
    assert line(tree).environment == (("A", "1"), ("B", "2 3"))


def test_variables_of_environment_files_are_expanded_and_split_into_words(tree: Tree) -> None:
    tree.put(UNIT, "[Service]\nEnvironmentFile=-/etc/default/x\nExecStart=/bin/x $OPTS $NONE end\n")
    tree.put("/etc/default/x", '# no\nOPTS="--a 1 --b"\n')
    assert line(tree).words == ("--a", "1", "--b", "end")


def test_options_are_found_in_both_notations() -> None:
    words = Command(words=("-c", "1", "--config=2", "--flag", "--no=false", "--config"))
    assert words.values("--config", "-c") == ("1", "2", "")
    assert (words.flag("--flag"), words.flag("--no"), words.flag("--none")) == (True, False, None)
