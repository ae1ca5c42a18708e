"""Real shells for tests of completions: the completions of a line, and the line after a tab key."""

import os
import pty
import re
import select
import shutil
import signal
import time
from pathlib import Path

from support.abilities import tool
from support.processes import captured

# Ctrl-X Ctrl-B, which prints the line that is being edited.
SHOW_KEYS = "\x18\x02"
_END = "@@"
_PROMPT = "%READY%"
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[a-zA-Z]|[=>(][B0]?)")


class Shells:
    """bash, zsh and fish with the completions of a folder; ``cdigen`` is found in ``programs`` first."""

    def __init__(self, completions: Path, programs: Path, home: Path) -> None:
        self.completions = completions
        self.home = home
        self.environment = {"HOME": str(home), "PATH": f"{programs}:{os.environ['PATH']}", "TERM": "dumb"}
        (home / "functions").mkdir()
        shutil.copy(completions / "cdigen.zsh", home / "functions/_cdigen")

    def offers(self, shell: str, line: str) -> set[str]:
        """Return the completions of SHELL at the end of LINE."""
        return {"bash": self._bash_offers, "fish": self._fish_offers, "zsh": self._zsh_offers}[shell](line)

    def line_after_tab(self, shell: str, line: str) -> str:
        """Type LINE and the tab key into SHELL; return the resulting line."""
        message = self._typed(shell, f"{line}\t{SHOW_KEYS}")
        return str(re.findall(r"\[\[(.*?)\]\]", message, re.DOTALL)[-1])

    def _bash_offers(self, line: str) -> set[str]:
        # The completion receives the words into which bash splits the line.
        script = f"""
            . {self.completions}/cdigen.bash
            COMP_LINE=$1 COMP_POINT=${{#1}}
            read -ra COMP_WORDS <<<"${{1//=/ = }}"
            [[ $1 == *' ' ]] && COMP_WORDS+=('')
            COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
            _cdigen 2>/dev/null
            printf '%s\\n' "${{COMPREPLY[@]}}"
        """
        return self._lines([tool("bash"), "--norc", "-c", script, "bash", line])

    def _fish_offers(self, line: str) -> set[str]:
        script = f"source {self.completions}/cdigen.fish; complete -C $argv[1]"
        rows = self._lines([tool("fish"), "--no-config", "-c", script, line])
        return {row.partition("\t")[0] for row in rows}

    def _zsh_offers(self, line: str) -> set[str]:
        # Ctrl-D lists the completions, without a change of the line.
        message = self._typed("zsh", f"{line}\x04{SHOW_KEYS}")
        listed = message.partition("\n")[2].rpartition("[[")[0].replace(_PROMPT, "\n")
        return {
            word for row in listed.splitlines() if not row.startswith(line.strip()) for word in row.split()
        }

    def _lines(self, command: list[str]) -> set[str]:
        done = captured(command, env=self.environment, cwd=self.home, timeout=60)
        assert not done.stderr, done.stderr
        return {row for row in done.stdout.splitlines() if row}

    def _typed(self, shell: str, keys: str) -> str:
        """Type KEYS at the prompt of SHELL; return the output on its terminal after the prompt."""
        start, setup = {
            "bash": ([tool("bash"), "--norc", "--noprofile", "-i"], self._bash_setup()),
            "zsh": ([tool("zsh"), "-f", "-i"], self._zsh_setup()),
        }[shell]
        terminal = _Terminal(start, self.environment, self.home)
        try:
            terminal.type(f"{setup}\n")
            terminal.read_until(f"\n{_PROMPT}", f"\r{_PROMPT}")
            terminal.type(keys)
            return _ESCAPES.sub("", terminal.read_until(_END)).replace("\r", "")
        finally:
            terminal.close()

    def _bash_setup(self) -> str:
        show = """bind -x '"\\C-x\\C-b": echo; echo "[[$READLINE_LINE]]@""@"'"""
        return f". {self.completions}/cdigen.bash; bind 'set bell-style none'; {show}; PS1=%REA''DY%"

    def _zsh_setup(self) -> str:
        return (
            f"fpath=({self.home}/functions $fpath); autoload -Uz compinit; compinit -u -D; LISTMAX=0; "
            "zstyle ':completion:*' verbose no; unsetopt beep prompt_cr prompt_sp; "
            "shown() { print; print -r -- \"[[$BUFFER]]@\"'@' }; zle -N shown; bindkey '^X^B' shown; "
            "PS1=$'\\n%%REA''DY%%'"
        )


class _Terminal:
    def __init__(self, command: list[str], environment: dict[str, str], folder: Path) -> None:
        self.process, self.descriptor = pty.fork()
        if self.process == 0:
            os.chdir(folder)
            os.execve(command[0], command, {**environment, "COLUMNS": "200", "LINES": "200"})

    def type(self, keys: str) -> None:
        os.write(self.descriptor, keys.encode())

    def read_until(self, *ends: str, within_s: float = 20.0) -> str:
        message = b""
        deadline = time.monotonic() + within_s
        while not any(end.encode() in message for end in ends):
            ready, _, _ = select.select([self.descriptor], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"nothing more came after {message!r}"
            message += os.read(self.descriptor, 1 << 16)
        return message.decode(errors="replace")

    def close(self) -> None:
        os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)
        os.close(self.descriptor)
