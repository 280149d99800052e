"""`python -m paper`: Ctrl-C is obeyed while the rest is still being imported."""

from nestbed.numerics import interrupts


def main() -> None:
    """Run the command line."""
    interrupts.run("paper.cli:main")


if __name__ == "__main__":
    main()
