"""What became of a run of the command, and the GPUs of the host that it ran on."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kernelside import example_gpus

GPUS = example_gpus(2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What became of a run of the command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its standard output, which must be one JSON document."""
        return json.loads(self.out)

    def failed(self, code: int, *words: str) -> bool:
        """Whether it ended with CODE and one line on stderr that holds all WORDS, and no traceback."""
        lines = [line for line in self.err.splitlines() if not line.startswith("cdigen: warning")]
        text = lines[-1] if lines else ""
        return self.code == code and "Traceback" not in self.err and all(word in text for word in words)


Run = Callable[..., Done]
