"""`python -m nestbed` is the command line."""

from nestbed.cli import main

main()
