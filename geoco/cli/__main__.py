"""`python -m geoco.cli`: the command line without an installed script."""

from geoco.cli.main import main

main()
