"""`nestbed show`."""

from pathlib import Path

from nestbed.numerics.errors import NestbedError


def show(*folders: Path) -> None:
    """Print training runs and draw their curves: settings, iterations, gains.

    For example: nestbed show runs/nonlinear_pendulum

    Parameters
    ----------
    folders
        Folders of runs; one that holds several seeds is shown as one training.
    """
    from nestbed.faces import figures
    from nestbed.faces.terminal import say, training
    from nestbed.runs import folder as runs

    if not folders:
        raise NestbedError("nestbed show needs the folder of a run, such as runs/nonlinear_pendulum.")
    for folder in folders:
        logs = [runs.load_log(place) for place in runs.within(folder)]
        training.runs(logs)
        curve = figures.save_curve(logs, folder)
        training.verdicts(logs)
        say(f"Drawn in {curve}")
