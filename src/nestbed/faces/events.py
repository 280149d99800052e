"""TensorBoard events, for those who watch their runs there."""

import secrets
from pathlib import Path
from typing import Any

from nestbed.numerics import storage
from nestbed.numerics.errors import NestbedError
from nestbed.runs.run import Run

FOLDER = "tensorboard"


class Events:
    """Writes the numbers of each iteration as TensorBoard scalars, into a folder of the run's."""

    def __init__(self, run: Path):
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise NestbedError(
                "TensorBoard events need the package tensorboardX; install it with: pip install 'nestbed[tensorboard]'."
            ) from None
        storage.unlinked(run, FOLDER)

        def opened() -> Any:
            unforeseen = f".{secrets.token_hex(8)}"  # so there is nothing that could be written through
            return SummaryWriter(str(storage.inside(run, FOLDER)), filename_suffix=unforeseen)

        self.open = opened
        self.writer: Any = None

    def write(self, run: Run) -> None:
        """Write the last iteration."""
        self.writer = self.writer or self.open()  # not before the run's folder is known to be good
        row = run.metrics[-1]
        for name, value in row.items():
            if name != "iteration" and value is not None:
                self.writer.add_scalar(name, value, row["iteration"])
        self.writer.flush()
