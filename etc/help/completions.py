"""Completions for bash, zsh, fish: shtab makes them of the parsers, this tells it what values there are."""

from __future__ import annotations

import argparse
import re

import shtab
from commands import actions, commands

from cdigen.cdi.library import RELEASES
from cdigen.runtimes.releases import LIBRARIES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Action, ArgumentParser

SHELLS = ("bash", "zsh", "fish")
HEADER = """\
# Made by 'make generated' of the commands' own parsers, with https://github.com/tqdm/shtab: not to be edited.
"""

# The first column of what a runtime finds now, if that is a name as CDI has them: what is in a spec that
# nobody loads may look like a row of a usable device, and bash runs what stands in $( ) in a list of words.
_NAME = "[A-Za-z0-9._:-]*"
_STATE = r"\(usable  \|unhealthy: \)"
_DEVICES = rf"cdigen list --quiet 2>/dev/null | sed -n 's/^\({_NAME}\/{_NAME}={_NAME}\)  *{_STATE}.*/\1/p'"
_KINDS = f"{_DEVICES} | sed 's/=.*//' | sort -u"


def _listed(name: str, command: str) -> dict[str, object]:
    """Return a completion by the lines that COMMAND prints when the key is pressed."""
    bash = f'{name}() {{\n\tcompgen -W "$({command})" -- "$1"\n}}'
    zsh = f'{name}() {{\n\tlocal -a found=(${{(f)"$({command})"}})\n\tcompadd -a found\n}}'
    fish = f"function {name}\n\t{command}\nend"
    return {
        "bash": name,
        "zsh": name,
        "fish": f"({name})",
        "preamble": {"bash": bash, "zsh": zsh, "fish": fish},
    }


_USERS: dict[str, object] = {
    "bash": "_cdigen_users",
    "zsh": "_users",
    "fish": "(__fish_complete_users)",
    "preamble": {"bash": '_cdigen_users() {\n\tcompgen -u -- "$1"\n}'},
}

# By option, else by the word that stands for the value.
BY_OPTION = {"--device": _listed("_cdigen_devices", _DEVICES), "--user": _USERS}
BY_METAVAR = {
    "FILE": shtab.FILE,
    "DIR": shtab.DIRECTORY,
    "DEVICE": BY_OPTION["--device"],
    "KIND": _listed("_cdigen_kinds", _KINDS),
}
SERIES = tuple(
    dict.fromkeys(
        f"{runtime}-{release[0]}.{release[1]}" for runtime, rows in LIBRARIES.items() for release, _ in rows
    )
)
VALUES = {"--target": SERIES, "--loader": (*RELEASES, "main"), "--nvml": ("auto", "off")}

# bash takes = and : for ends of words as well: nvidia.com/gpu=0 and --root=DIR come in pieces, and what is
# offered replaces the last piece only.
WHOLE_WORDS = r"""
_cdigen() {
	local rest=$COMP_LINE trimmed word breaks prefix
	local -a whole=()
	for word in "${COMP_WORDS[@]:0:COMP_CWORD+1}"; do
		trimmed=${rest#"${rest%%[![:space:]]*}"}
		if [[ $trimmed == "$rest" && ${#whole[@]} -gt 0 ]]; then
			whole[${#whole[@]}-1]+=$word
		else
			whole+=("$word")
		fi
		rest=${trimmed#"$word"}
	done
	local -a COMP_WORDS=()
	for word in "${whole[@]}"; do
		if [[ $word == --*=* ]]; then
			COMP_WORDS+=("${word%%=*}" "${word#*=}")
		else
			COMP_WORDS+=("$word")
		fi
	done
	local COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
	_shtab_cdigen
	word=${COMP_WORDS[COMP_CWORD]}
	breaks=${COMP_WORDBREAKS//[^=:]/}
	[[ -n $breaks && $word == *["$breaks"]* ]] || return 0
	prefix=${word%"${word##*["$breaks"]}"}
	COMPREPLY=("${COMPREPLY[@]#"$prefix"}")
}

complete -o bashdefault -F _cdigen cdigen
"""


def completions() -> dict[str, str]:
    """Return the text of each completion by its file's name."""
    made = {shell: shtab.complete(_whole_parser(), shell) for shell in SHELLS}
    made["bash"] = made["bash"].replace(
        "complete -o bashdefault -F _shtab_cdigen cdigen", WHOLE_WORDS.strip()
    )
    made["zsh"] = _with_more_words(made["zsh"])
    return {f"cdigen.{shell}": _finished(text) for shell, text in made.items()}


def _with_more_words(text: str) -> str:
    """Return zsh's TEXT with values after ``=`` as well, and all of an argument that may be repeated."""
    text = re.sub(r'^( +"\*?--[a-z0-9-]+)(\[.*\]:)', r"\1=\2", text, flags=re.MULTILINE)
    return re.sub(r'^( +")\(\*\):', r"\1*:", text, flags=re.MULTILINE)


def _finished(text: str) -> str:
    text = re.sub(
        r"^# AUTOMATICALLY GENERATED.*\n(?:#.*\n)*", lambda _: HEADER, text, count=1, flags=re.MULTILINE
    )
    return re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE).rstrip("\n") + "\n"


def _whole_parser() -> ArgumentParser:
    """Return one parser that has every command as a part, as shtab wants it."""
    found = {command.name: command for command in commands()}
    whole = argparse.ArgumentParser(prog="cdigen")
    whole.add_argument("-V", "--version", action="version", help="show the version")
    for action in actions(whole):
        if "--help" in action.option_strings:
            action.help = "show help"

    def made(*, prog: str, **_: object) -> ArgumentParser:
        return found[prog.removeprefix("cdigen ")].parser

    # A class for argparse: what is called with the options of a part, and returns its parser.
    parts = whole.add_subparsers(parser_class=made, metavar="COMMAND")  # type: ignore[call-overload]
    for command in found.values():
        parts.add_parser(command.name, help=command.summary)
        for action in actions(command.parser):
            _tell_values(action)
    return whole


def _tell_values(action: Action) -> None:
    option = action.option_strings[-1] if action.option_strings else ""
    if option in VALUES:
        action.choices = VALUES[option]
    elif not action.choices and (complete := BY_OPTION.get(option) or BY_METAVAR.get(str(action.metavar))):
        action.complete = complete  # type: ignore[attr-defined]
