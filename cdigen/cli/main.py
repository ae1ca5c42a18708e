"""The entry point: find the command, run it, turn every failure into one line and an exit code."""

from __future__ import annotations

import gc
import io
import os
import sys
from importlib import import_module

from cdigen import __version__
from cdigen.model.errors import CdigenError, ConfigError, StoreError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

# name -> (module, what it does)
COMMANDS = {
    "config": ("cdigen.cli.config", "check the configuration alone"),
    "configure": ("cdigen.cli.configure", "set in a container runtime's own configuration what CDI needs"),
    "diff": ("cdigen.cli.diff", "compare the specs on disk with what this host would give now"),
    "docker-args": (
        "cdigen.cli.docker_args",
        "print the arguments of 'docker run' that give a container devices",
    ),
    "doctor": ("cdigen.cli.doctor", "find what keeps containers from the devices, and what fixes it"),
    "extender": ("cdigen.cli.extender", "let the scheduler share GPUs by memory, as its extender"),
    "generate": ("cdigen.cli.generate", "print or write the CDI specs of this host"),
    "health": ("cdigen.cli.health", "show which devices can be used, and why others cannot"),
    "inspect": ("cdigen.cli.inspect", "show what was looked for on this host, and what was found"),
    "install-service": (
        "cdigen.cli.install_service",
        "put units, hook, man pages and completions of an installed wheel onto this host",
    ),
    "kubelet": ("cdigen.cli.kubelet", "offer this host's devices to the kubelet, as its device plugins"),
    "list": ("cdigen.cli.list", "list the devices that a container runtime finds"),
    "nri": (
        "cdigen.cli.nri",
        "run as an NRI plugin, which gives containers the devices that they ask for",
    ),
    "prune": ("cdigen.cli.prune", "remove the driver views that no spec and no container uses"),
    "resolve": (
        "cdigen.cli.resolve",
        "show which devices a container would get from the NRI plugin, and why",
    ),
    "run": ("cdigen.cli.run", "run as a daemon that keeps the specs true"),
    "status": ("cdigen.cli.status", "show how the daemon and the host stand"),
    "topology": ("cdigen.cli.topology", "show how the devices of this host are linked"),
    "validate": ("cdigen.cli.validate", "check spec files as the runtimes' loaders do"),
    "withdraw": ("cdigen.cli.withdraw", "remove the specs that cdigen wrote, on purpose"),
}

# Options that may stand before the command and take the next argument as their value.
VALUE_OPTIONS = frozenset({
    "--annotation", "--binary-search-path", "--bundle", "--cdi-device", "--clear", "--client-ca",
    "--client-name", "--config", "--config-search-path", "--container", "--container-driver-root",
    "--count-resource", "--daemon-dir", "--destdir", "--dev-root", "--device", "--device-node",
    "--driver-root", "--env", "--for", "--form", "--format", "--hook", "--image-config", "--index",
    "--inventory", "--kind", "--kubeconfig", "--kubelet-dir", "--label", "--layout",
    "--library-search-path", "--listen", "--loader", "--mark", "--mode", "--mount", "--name",
    "--namespace", "--naming", "--node-name", "--node-strategy", "--nvml", "--output", "--output-dir",
    "--prefix", "--profile", "--reason", "--resource", "--root", "--run-dir", "--runtime-handler",
    "--socket", "--spec-dir", "--strategy", "--svg", "--target", "--tls-cert", "--tls-key",
    "--token-file", "--user", "--vendor",
})  # fmt: skip

_PURPOSE = (
    "Makes this host's GPUs available to containers: writes and checks CDI specifications, so that "
    "'podman run --device nvidia.com/gpu=0' works with an ordinary runtime."
)
_HELP = frozenset({"-h", "--help", "help"})

EXIT_DEFECT = 70  # EX_SOFTWARE of sysexits.h: cdigen itself is wrong
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as a shell reports it


class UnprintedError(StoreError):
    """Report that stdout takes nothing: a full disk, a terminal that has gone."""

    default_kind = "unprinted"


class _Output(io.FileIO):
    """A stdout whose failures cannot be taken for those of other files, or for a defect.

    Whatever prints meets them: print_bytes at once, text where the buffer is full or at the end.
    """

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            text = error.strerror or str(error)
            raise UnprintedError(
                f"standard output cannot be written: {text}", hint="what was printed is not whole"
            ) from None


def run() -> NoReturn:
    """Run the command line of this process and exit."""
    _end(main)


def run_kubectl_inspect_gpushare() -> NoReturn:
    """Run the command line of ``kubectl inspect gpushare``, a program of its own, and exit."""
    _end(inspect_gpushare)


def _end(work: Callable[[list[str]], int]) -> NoReturn:
    # A command lives for a blink: collecting garbage costs it time and gives back nothing.
    gc.disable()
    _open_standard_files()
    _watch_output()
    code = work(sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, UnprintedError):
            # It was said, or the reader has gone (``cdigen list | head``).
            _drop(stream.fileno())
    if "threading" not in sys.modules:
        # Nobody is to be waited for, and taking all modules apart takes Python 7 ms, an eighth of the whole.
        os._exit(code)
    sys.exit(code)


def _drop(descriptor: int) -> None:
    """Lead DESCRIPTOR to nowhere: the interpreter flushes it at exit, and would complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


def main(arguments: list[str]) -> int:
    """Run ARGUMENTS and return the exit code (see ``cdigen --help``)."""
    if _asks_only(arguments):
        return _guarded(_print_information, arguments)
    return _guarded(lambda given: _run_command(*split_command(given)), arguments)


def inspect_gpushare(arguments: list[str]) -> int:
    """Run ``kubectl inspect gpushare`` with ARGUMENTS and return the exit code."""
    from cdigen.cli import kubectl_gpushare  # noqa: PLC0415 - for this program alone

    return _guarded(
        lambda given: _run_module(kubectl_gpushare, kubectl_gpushare.NAME, kubectl_gpushare.SUMMARY, given),
        arguments,
    )


def _guarded(work: Callable[[list[str]], int], arguments: list[str]) -> int:
    """Let WORK run ARGUMENTS; returns the exit code, also of what it raises, and says that in a line."""
    code = 0
    try:
        code = work(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        return code
    except CdigenError as error:
        return _fail(error, as_json="--json" in arguments)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except Exception as error:  # the last line of defence: a user never sees a traceback
        if "--verbose" in arguments:
            raise
        message = f"internal error: {type(error).__name__}: {error}"
        hint = "this is a defect of cdigen; run it with --verbose and report what it prints"
        failure = CdigenError(message, hint=hint, kind="internal")
        _fail(failure, as_json="--json" in arguments)
        return EXIT_DEFECT
    return code


def _asks_only(arguments: list[str]) -> bool:
    return not arguments or arguments[0] in {*_HELP, "-V", "--version"}


def _print_information(arguments: list[str]) -> int:
    """Print the help, that of a command where one is named, or the version; raises ConfigError.

    The help is an error where nothing was asked for.
    """
    asked, *rest = arguments or [""]
    if asked in {"-V", "--version"}:
        _refuse_more(asked, rest)
        sys.stdout.write(f"cdigen {__version__}\n")
        return 0
    names = [name for name in rest if name not in _HELP]
    if names:
        is_command = not names[0].startswith("-")
        # A command of two words is one to its user.
        if names == ["config", "check"]:
            names.pop()
        _refuse_more(f"{asked} {names[0]}" if is_command else asked, names[1:] if is_command else names)
        return _run_command(names[0], ["--help"])
    (sys.stdout if arguments else sys.stderr).write(help_text())
    return 0 if arguments else 2


def _refuse_more(asked: str, rest: list[str]) -> None:
    if rest:
        raise ConfigError(f"unrecognized arguments: {' '.join(rest)}", hint=f"'cdigen {asked}' takes no more")


def _open_standard_files() -> None:
    """Make sure that 0, 1 and 2 are open: other files would get these numbers, and what is printed."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest number that is free.
            os.open(os.devnull, os.O_RDWR)
    # None is what Python makes of a closed one.
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)


def _watch_output() -> None:
    """Put an ``_Output`` below stdout, all else as Python has made it."""
    old = sys.stdout
    raw = _Output(old.fileno(), "w", closefd=False)
    buffer = io.BufferedWriter(raw)
    sys.stdout = io.TextIOWrapper(buffer, old.encoding, old.errors, line_buffering=raw.isatty())


def split_command(arguments: list[str]) -> tuple[str, list[str]]:
    """Return the command in ARGUMENTS and the others: ``--root DIR generate`` is ``generate --root DIR``."""
    position = 0
    while position < len(arguments) and arguments[position].startswith("-"):
        position += 2 if arguments[position] in VALUE_OPTIONS else 1
    if position >= len(arguments):
        raise ConfigError("no command is given", hint="see 'cdigen --help'")
    return arguments[position], arguments[:position] + arguments[position + 1 :]


def help_text() -> str:
    """Return the text of ``cdigen --help``, as wide as the terminal."""
    from cdigen.cli.terminal import help_width, wrap_text  # noqa: PLC0415 - not for a command

    columns = help_width()
    side = max(map(len, COMMANDS)) + 4

    def fitted(text: str, indent: int) -> str:
        return "\n".join(wrap_text(text, columns, indent=" " * indent))

    rows = "\n".join(fitted(f"  {name:{side - 2}}{summary}", side) for name, (_, summary) in COMMANDS.items())
    return f"""usage: cdigen COMMAND [OPTION ...]

{fitted(_PURPOSE, 0)}

commands:
{rows}

options:
  -h, --help     show this text; 'cdigen help COMMAND' explains a command
  -V, --version  show the version

examples:
  cdigen inspect                   what this host has
  cdigen generate --write          write the specs where the runtimes read them
  cdigen list                      the names that --device takes
  podman run --rm --device nvidia.com/gpu=all IMAGE nvidia-smi
  cdigen doctor                    why that does not work, and what fixes it

exit codes:
  0   done
  1   something is wrong (doctor, validate) or differs (diff)
  2   wrong usage or configuration
  3   the host is not ready (status, health: no daemon runs)
  4   a spec broke a rule or would clash
  5   reading or writing failed (run: another daemon runs)
  70  a defect of cdigen
"""


def _run_command(name: str, arguments: list[str]) -> int:
    if name == "run":
        # Before what takes long: SIGHUP must not end a daemon that is just starting.
        from cdigen.frontend import signals  # noqa: PLC0415 - no other command has a use for it

        signals.listen()
    from cdigen.cli.parser import unknown_command  # noqa: PLC0415 - argparse: not for --version

    if name not in COMMANDS:
        raise unknown_command(name, tuple(COMMANDS))
    module_name, summary = COMMANDS[name]
    return _run_module(import_module(module_name), f"cdigen {name}", summary, arguments)


def _run_module(module: Any, name: str, summary: str, arguments: list[str]) -> int:
    """Run the command in MODULE, called NAME, with ARGUMENTS; returns the exit code or raises."""
    from cdigen.cli.parser import Parser  # noqa: PLC0415 - argparse: not for --version

    parser = Parser(prog=name, summary=summary, examples=module.EXAMPLES)
    module.add_options(parser)
    try:
        parsed = parser.parse_args(arguments)
    except SystemExit:  # after --help; its errors are ConfigErrors
        return 0
    code: int = module.run(parsed)
    return code


def _fail(error: CdigenError, *, as_json: bool) -> int:
    from cdigen.cli.report import print_errors  # noqa: PLC0415 - only where something is wrong

    # Where stdout takes nothing, it does not take the news of that either.
    if as_json and not isinstance(error, UnprintedError):
        import json  # noqa: PLC0415 - only where it is asked for
        from contextlib import suppress  # noqa: PLC0415 - likewise

        body = {"error": {"kind": error.kind, "message": error.message, "hint": error.hint}}
        with suppress(UnprintedError, BrokenPipeError):
            sys.stdout.write(json.dumps(body, ensure_ascii=True) + "\n")
            sys.stdout.flush()
    print_errors([error])
    return error.exit_code
