"""TensorBoard events, for those who watch their runs there."""

from pathlib import Path
from typing import Any

from nestbed.errors import NestbedError
from nestbed.runs import Run


class Events:
    """Writes the numbers of each iteration as TensorBoard scalars."""

    def __init__(self, folder: Path):
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise NestbedError(
                "TensorBoard events need the package tensorboardX; install it with: pip install 'nestbed[tensorboard]'."
            ) from None
        self.open = lambda: SummaryWriter(str(folder))
        self.writer: Any = None

    def write(self, run: Run) -> None:
        """Write the last iteration."""
        self.writer = self.writer or self.open()  # not before the run's folder is known to be good
        row = run.metrics[-1]
        for name, value in row.items():
            if name != "iteration" and value is not None:
                self.writer.add_scalar(name, value, row["iteration"])
        self.writer.flush()
