"""One run on a machine with a GPU: its options, its commands and the result of each step."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
# The time limit for all steps together.
LIMIT_S = 570.0


class Skipped(Exception):
    """The step cannot run on this machine; the message is the reason."""


class Failed(Exception):
    """The step found a fault; the message describes the fault."""


@dataclass(slots=True, kw_only=True)
class Command:
    command: list[str]
    exit_code: int | None
    seconds: float


@dataclass(slots=True, kw_only=True)
class Step:
    name: str
    verdict: str = "ok"
    reason: str = ""
    seconds: float = 0.0
    commands: list[Command] = field(default_factory=list)

    @property
    def line(self) -> str:
        """The step's line in the summary."""
        return f"{self.verdict:8} {self.name:12} {self.seconds:6.1f} s  {self.reason}".rstrip()


class Run:
    """The options, the steps done so far, and the inventory once the step `inspect` has read it."""

    def __init__(
        self, *, output: Path, images: Path, root: Path | None, nvml: Path | None, nvidia_smi: str | None
    ) -> None:
        self.out = output
        self.root = root
        self.nvml = nvml
        self.smi = nvidia_smi or (None if root else shutil.which("nvidia-smi"))
        # The folder that cdigen writes to, with its path on the host.
        self.work = Path("/srv/cdigen-real-gpu") if root else output / "work"
        self.image = images / "rootfs"
        self.libcuda: Path | None = None
        self.steps: list[Step] = []
        self.inventory: dict[str, Any] = {}
        self.deadline_s = time.monotonic() + LIMIT_S

    @property
    def gpus(self) -> list[dict[str, Any]]:
        """The GPUs of the inventory."""
        if not self.inventory:
            raise Skipped("no inventory from the step inspect")
        return list(self.inventory["accelerators"])

    def on_host(self, path: str | Path) -> Path:
        """Return the path by which this process opens PATH of the host."""
        return Path(f"{self.root or ''}{path}")

    def do(self, work: "Callable[[Run], None]") -> None:
        """Do one step, record its result, and print the verdict."""
        step = Step(name=work.__name__.replace("_", "-"))
        self.steps.append(step)
        begun_s = time.monotonic()
        try:
            if begun_s > self.deadline_s:
                raise Skipped("time limit of the run reached")
            work(self)
        except Skipped as skipped:
            step.verdict, step.reason = "skipped", str(skipped)
        except Failed as failed:
            step.verdict, step.reason = "failed", str(failed)
        except Exception as error:  # noqa: BLE001 - the next step runs anyway
            step.verdict, step.reason = "failed", f"{type(error).__name__}: {error}"
        step.seconds = round(time.monotonic() - begun_s, 2)
        print(step.line, flush=True)

    def summarize(self) -> int:
        """Write the summary and the archive; return the exit code."""
        failed = [step.name for step in self.steps if step.verdict == "failed"]
        verdict = f"failed: {', '.join(failed)}" if failed else "ok: no step failed"
        lines = [*(step.line for step in self.steps), verdict]
        (self.out / "summary.txt").write_text("\n".join(lines) + "\n")
        (self.out / "summary.json").write_text(
            json.dumps([asdict(step) for step in self.steps], indent=2) + "\n"
        )
        with tarfile.open(self.out / "real-gpu.tar.gz", "w:gz") as archive:
            texts = {".err", ".json", ".txt"}
            for file in sorted(file for file in self.out.iterdir() if file.suffix in texts):
                archive.add(file, f"real-gpu/{file.name}")
        print(f"{verdict} ({self.out})")
        return 1 if failed else 0

    def call(self, name: str, *command: str | Path, timeout_s: float = 60, stdin: str = "") -> str:
        """Run a command, which must succeed; keep and return its standard output."""
        begun_s = time.monotonic()
        timeout_s = max(0.1, min(timeout_s, self.deadline_s - begun_s))
        words = [str(word) for word in command]
        record = Command(command=words, exit_code=None, seconds=0.0)
        self.steps[-1].commands.append(record)
        kept, errors = self.out / f"{name}.txt", self.out / f"{name}.err"
        # Files instead of pipes: a process that hangs in the kernel would block the reader of a pipe.
        with kept.open("w") as output, errors.open("w") as error_output:
            process = subprocess.Popen(
                words,
                cwd=REPOSITORY,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=error_output,
                start_new_session=True,
            )
            with suppress(subprocess.TimeoutExpired):
                process.communicate(stdin.encode(), timeout=timeout_s)
                record.exit_code = process.returncode
            if record.exit_code is None:
                os.killpg(process.pid, signal.SIGKILL)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=5)
        record.seconds = round(time.monotonic() - begun_s, 2)
        text = kept.read_text(errors="replace")
        if text[:1] in {"{", "["}:
            kept.rename(kept.with_suffix(".json"))
        if record.exit_code != 0:
            last = (errors.read_text(errors="replace").strip() or text.strip() or "no output").splitlines()[
                -1
            ]
            end = "no end" if record.exit_code is None else f"exit code {record.exit_code}"
            raise Failed(f"{name}: {end} after {record.seconds} s: {last}")
        return text

    def cdigen(self, name: str, *arguments: str | Path, timeout_s: float = 60) -> str:
        """Run a command of cdigen for the host."""
        return self.call(name, *self.cdigen_command(*arguments), timeout_s=timeout_s)

    def cdigen_command(self, *arguments: str | Path) -> list[str]:
        host = ("--root", self.root) if self.root else ()
        command = (sys.executable, "-m", "cdigen", *arguments, "--config", self.out / "config.yaml", *host)
        return [str(word) for word in command]

    def generate(self, name: str, *options: str) -> dict[str, Any]:
        """Return the spec of the host's GPUs, also written to NAME.json."""
        text = self.cdigen(name, "generate", "--kind", "nvidia.com/gpu", "--vendor", "nvidia", *options)
        document: dict[str, Any] = json.loads(text)
        return document


def same(what: str, found: Any, source: str, expected: Any) -> None:
    """Raise Failed if cdigen's value FOUND differs from the value EXPECTED of SOURCE."""
    if found != expected:
        raise Failed(f"{what}: cdigen has {found}, {source} has {expected}")


def needed(program: str | None, name: str) -> str:
    """Return PROGRAM, the path of the program NAME; raise Skipped if it is None."""
    if program is None:
        raise Skipped(f"{name}: not found")
    return program


def until(true: Callable[[], bool], what: str, timeout_s: float) -> None:
    """Call TRUE until its result is true; raise Failed after TIMEOUT_S."""
    deadline_s = time.monotonic() + timeout_s
    while not true():
        if time.monotonic() > deadline_s:
            raise Failed(f"not {what} after {timeout_s} s")
        time.sleep(0.2)


@contextmanager
def running(run: Run, name: str, *arguments: str) -> Iterator[None]:
    """Run a command of cdigen in the background; SIGTERM must end it with exit code 0."""
    command = run.cdigen_command(*arguments)
    begun_s = time.monotonic()
    record = Command(command=command, exit_code=None, seconds=0.0)
    run.steps[-1].commands.append(record)
    with (run.out / f"{name}.txt").open("w") as log:
        process = subprocess.Popen(command, cwd=REPOSITORY, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        try:
            record.exit_code = process.wait(timeout=15)
        finally:
            process.kill()
            record.seconds = round(time.monotonic() - begun_s, 2)
    if record.exit_code != 0:
        raise Failed(f"{name}: exit code {record.exit_code} after SIGTERM")
