"""The command `nestbed`, also as `python -m nestbed`: Ctrl-C is obeyed while the rest is still being imported."""

from nestbed.numerics import interrupts


def main() -> None:
    """Run the command line."""
    interrupts.install()
    try:
        from nestbed.faces.cli.app import main as run

        run()
    except (Exception, KeyboardInterrupt):
        if not interrupts.asked():
            raise
        interrupts.stop()  # an import broken off may have made another error of it
    finally:
        interrupts.ignore()  # what is left to do is to end


if __name__ == "__main__":
    main()
