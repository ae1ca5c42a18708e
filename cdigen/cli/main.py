"""The entry point: run a command, and report every failure with one line and an exit code."""

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

    from cdigen.cli.shared.parser import Parser

# Name of the command -> (folder of its module in cdigen.cli, summary).
COMMANDS = {
    "config": ("host", "check the configuration file"),
    "configure": ("host", "enable CDI in the configuration of a container runtime"),
    "create-nodes": ("host", "create the device nodes that the kernel does not create, as at boot"),
    "diff": ("specs", "compare the specs on disk with the present state of this host"),
    "docker-args": ("specs", "print the arguments of 'docker run' that add devices to a container"),
    "doctor": ("host", "find problems that keep devices from containers, and their remedies"),
    "extender": ("services", "run as a scheduler extender for GPUs that are shared by memory"),
    "generate": ("specs", "print or write the CDI specs of this host"),
    "health": ("services", "show the health of devices, with the causes of unhealthy ones"),
    "inspect": ("specs", "show the inventory of this host, with all searched files"),
    "install-service": (
        "host",
        "install units, hook, man pages and completions of an installed wheel on this host",
    ),
    "kubelet": ("services", "run as device plugins, which advertise devices to the kubelet"),
    "list": ("specs", "list the devices that a container runtime finds"),
    "nri": ("services", "run as an NRI plugin, which injects requested devices into containers"),
    "prune": ("specs", "remove the driver views that no spec and no container uses"),
    "resolve": ("specs", "show the devices that the NRI plugin would inject into a container, with reasons"),
    "run": ("services", "run as a daemon that keeps the specs up to date"),
    "status": ("services", "show the state of the daemon and the host"),
    "topology": ("specs", "show the links between the devices of this host"),
    "validate": ("specs", "check spec files like the runtimes' loaders"),
    "withdraw": ("specs", "remove the specs that cdigen wrote"),
}

_PURPOSE = (
    "Makes this host's GPUs available to containers: writes and checks CDI specifications, so that "
    "'podman run --device nvidia.com/gpu=0' works with an ordinary runtime."
)
_HELP = frozenset({"-h", "--help", "help"})

EXIT_DEFECT = 70  # EX_SOFTWARE of sysexits.h: a defect of cdigen
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as in shells


class UnprintedError(StoreError):
    """Report a failed write to stdout, for example because the disk is full or the terminal is closed."""

    default_kind = "unprinted"


class _Output(io.FileIO):
    """The raw file of stdout, which raises UnprintedError if a write fails.

    The separate error class distinguishes these failures from failures of other files and from defects. A
    printing function raises the error when it flushes the buffer or when the buffer is full.
    """

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            text = error.strerror or str(error)
            raise UnprintedError(
                f"standard output cannot be written: {text}", hint="the output is incomplete"
            ) from None


def run() -> NoReturn:
    """Run the command line of this process and exit."""
    _end(main)


def run_kubectl_inspect_gpushare() -> NoReturn:
    """Run the command line of the separate program ``kubectl inspect gpushare``, and exit."""
    _end(inspect_gpushare)


def _end(work: Callable[[list[str]], int]) -> NoReturn:
    # Garbage collection would cost time without a benefit, because a command ends soon.
    gc.disable()
    _open_standard_files()
    _watch_output()
    code = work(sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, UnprintedError):
            # The failure is already reported, or the reader has ended (``cdigen list | head``).
            _discard_output(stream.fileno())
    if "threading" not in sys.modules:
        # No threads are running. Python's cleanup of modules would take 7 ms, an eighth of the run.
        os._exit(code)
    sys.exit(code)


def _discard_output(descriptor: int) -> None:
    """Redirect DESCRIPTOR to /dev/null.

    The interpreter flushes the file at exit. Without the redirection, the interpreter would print an error.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


def main(arguments: list[str]) -> int:
    """Run ARGUMENTS and return the exit code (see ``cdigen --help``)."""
    if not arguments or arguments[0] in {*_HELP, "-V", "--version"}:
        return _guarded(_print_information, arguments)
    return _guarded(lambda words: _run_command(*split_command(words)), arguments)


def inspect_gpushare(arguments: list[str]) -> int:
    """Run ``kubectl inspect gpushare`` with ARGUMENTS and return the exit code."""
    from cdigen.cli.services import kubectl_gpushare  # noqa: PLC0415 - only for this program

    return _guarded(
        lambda words: _run_module(kubectl_gpushare, kubectl_gpushare.make_parser(), words), arguments
    )


def _guarded(work: Callable[[list[str]], int], arguments: list[str]) -> int:
    """Call WORK with ARGUMENTS and return the exit code. If WORK raises an error, print the error."""
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
    except Exception as error:  # users must not see a traceback
        if isinstance(error, ImportError):
            from cdigen.cli.shared.python_modules import missing_module  # noqa: PLC0415 - only for this error

            if (missing := missing_module(error)) is not None:
                return _fail(missing, as_json="--json" in arguments)
        if "--verbose" in arguments:
            raise
        message = f"internal error: {type(error).__name__}: {error}"
        hint = "this is a defect of cdigen; run it with --verbose and report the output"
        failure = CdigenError(message, hint=hint, kind="internal")
        _fail(failure, as_json="--json" in arguments)
        return EXIT_DEFECT
    return code


def _print_information(arguments: list[str]) -> int:
    """Print the help, the help of a command, or the version; raise ConfigError for other arguments.

    Without arguments, the help goes to stderr, and the exit code is 2.
    """
    first, *rest = arguments or [""]
    if first in {"-V", "--version"}:
        _reject_extra(first, rest)
        sys.stdout.write(f"cdigen {__version__}\n")
        return 0
    names = [name for name in rest if name not in _HELP]
    if names:
        is_command = not names[0].startswith("-")
        # Users write 'config check' as one command.
        if names == ["config", "check"]:
            names.pop()
        _reject_extra(f"{first} {names[0]}" if is_command else first, names[1:] if is_command else names)
        return _run_command(names[0], ["--help"])
    (sys.stdout if arguments else sys.stderr).write(help_text())
    return 0 if arguments else 2


def _reject_extra(command: str, rest: list[str]) -> None:
    if rest:
        raise ConfigError(f"unrecognized arguments: {' '.join(rest)}", hint=f"run 'cdigen {command}'")


def _open_standard_files() -> None:
    """Open the descriptors 0, 1 and 2 if they are closed.

    Otherwise, a file that cdigen opens later could get such a descriptor. cdigen would print into this file.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # The kernel assigns the lowest free number.
            os.open(os.devnull, os.O_RDWR)
    # Python sets a standard stream to None if its descriptor is closed.
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)


def _watch_output() -> None:
    """Replace the raw file of stdout by an ``_Output``; keep Python's encoding and error handler."""
    old = sys.stdout
    raw = _Output(old.fileno(), "w", closefd=False)
    buffer = io.BufferedWriter(raw)
    sys.stdout = io.TextIOWrapper(buffer, old.encoding, old.errors, line_buffering=raw.isatty())


def split_command(arguments: list[str]) -> tuple[str, list[str]]:
    """Return the command in ARGUMENTS and the remaining arguments.

    ``--root DIR generate`` is equivalent to ``generate --root DIR``.
    """
    position = 0
    while position < len(arguments) and arguments[position].startswith("-"):
        from cdigen.cli.shared.option_table import takes_value  # noqa: PLC0415 - imports argparse, rarely needed

        position += 2 if takes_value(arguments[position]) else 1
    if position >= len(arguments):
        raise ConfigError("missing command", hint="cdigen --help")
    return arguments[position], arguments[:position] + arguments[position + 1 :]


def help_text() -> str:
    """Return the text of ``cdigen --help``, wrapped to the width of the terminal."""
    from cdigen.cli.shared.terminal import help_width, wrap_text  # noqa: PLC0415 - not for a command

    columns = help_width()
    side = max(map(len, COMMANDS)) + 4

    def wrap(text: str, indent: int) -> str:
        return "\n".join(wrap_text(text, columns, indent=" " * indent))

    rows = "\n".join(wrap(f"  {name:{side - 2}}{summary}", side) for name, (_, summary) in COMMANDS.items())
    return f"""usage: cdigen COMMAND [OPTION ...]

{wrap(_PURPOSE, 0)}

commands:
{rows}

options:
  -h, --help     show this text; 'cdigen help COMMAND' explains a command
  -V, --version  show the version

examples:
  cdigen inspect                   show the devices and files of this host
  cdigen generate --write          write the specs for the runtimes
  cdigen list                      list the names for --device
  podman run --rm --device nvidia.com/gpu=all IMAGE nvidia-smi
  cdigen doctor                    find the reason if that fails, and the remedy

exit codes:
  0   success
  1   a problem (doctor, validate, resolve) or a difference (diff)
  2   wrong usage or configuration
  3   the host is not ready (status, health: no daemon runs)
  4   a spec broke a rule or would clash, or the daemon would undo the change
  5   reading or writing failed (run: another daemon runs)
  70  a defect of cdigen
"""


def _run_command(name: str, arguments: list[str]) -> int:
    if name == "run":
        # The signals are handled before slow imports: SIGHUP must not end a daemon that is starting.
        from cdigen.service.process import signals  # noqa: PLC0415 - only for the daemon

        signals.listen()
    from cdigen.cli.shared.parser import unknown_command  # noqa: PLC0415 - imports argparse, not for --version

    if name not in COMMANDS:
        raise unknown_command(name, tuple(COMMANDS))
    return _run_module(_module(name), command_parser(name), arguments)


def _module(name: str) -> Any:
    return import_module(f"cdigen.cli.{COMMANDS[name][0]}.{name.replace('-', '_')}")


def command_parser(name: str) -> Parser:
    """Return the parser of the command NAME."""
    from cdigen.cli.shared.option_table import add  # noqa: PLC0415 - imports argparse, not for --version
    from cdigen.cli.shared.parser import Parser  # noqa: PLC0415 - likewise

    module = _module(name)
    parser = Parser(prog=f"cdigen {name}", summary=COMMANDS[name][1], examples=module.EXAMPLES)
    module.add_options(parser)
    add(parser, "--json")
    verbosity = parser.add_mutually_exclusive_group()
    verbosity.add_argument("-v", "--verbose", action="store_true", help="print more on stderr")
    verbosity.add_argument("-q", "--quiet", action="store_true", help="print only errors on stderr")
    return parser


def _run_module(module: Any, parser: Parser, arguments: list[str]) -> int:
    try:
        parsed = parser.parse_args(arguments)
    except SystemExit:  # after --help; the errors of the parser are ConfigErrors
        return 0
    code: int = module.run(parsed)
    return code


def _fail(error: CdigenError, *, as_json: bool) -> int:
    from cdigen.cli.shared.report import print_errors  # noqa: PLC0415 - only for errors

    # The JSON error goes to stdout. It cannot be written if writing to stdout failed.
    if as_json and not isinstance(error, UnprintedError):
        import json  # noqa: PLC0415 - only for --json
        from contextlib import suppress  # noqa: PLC0415 - likewise

        body = {"error": {"kind": error.kind, "message": error.message, "hint": error.hint}}
        with suppress(UnprintedError, BrokenPipeError):
            sys.stdout.write(json.dumps(body, ensure_ascii=True) + "\n")
            sys.stdout.flush()
    print_errors([error])
    return error.exit_code
