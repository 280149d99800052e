@app.command
def reproduce(
    systems: Annotated[list[str], Parameter(negative="")],
    *,
    quick: bool = False,
    seeds: int | None = None,
    out: Path | None = None,
) -> None:
    """Compute every table and figure of the paper again, beside the published numbers, and write one report.

    Every cell is kept as soon as it is done: after Ctrl-C the same command goes on where it stopped. All systems take
    about 40 minutes on two cores, --quick a few.

    Examples:

    nestbed reproduce linear_pendulum

    nestbed reproduce all --quick

    nestbed reproduce cart_pole double_link --seeds 3 --out results/arms

    Parameters
    ----------
    systems
        linear_pendulum, nonlinear_pendulum, cart_pole, double_link, or all.
    quick
        Small trainings and few seeds: shows how it goes, proves nothing.
    seeds
        Policies trained with IO-SMC² for each system, 5 unless told (1 if quick).
    out
        Folder of the reproduction, by default results/reproduction (or results/reproduction_quick).
    """
    from nestbed.faces import terminal
    from nestbed.numerics.errors import at_least_one, did_you_mean
    from nestbed.systems import CATALOGUE
    from paper import report, tables
    from paper.cells import FULL, PUBLISHED, QUICK, plan
    from paper.reproduce import reproduce

    for name in systems:
        if name not in (*CATALOGUE, "all"):
            raise NestbedError(f"the paper has no system {name!r}; {did_you_mean(name, [*CATALOGUE, 'all'])}.")
    names = tuple(CATALOGUE) if "all" in systems else tuple(name for name in CATALOGUE if name in systems)
    scale = QUICK if quick else FULL
    at_least_one(seeds=scale.trainings if seeds is None else seeds)
    folder = out or Path("results") / ("reproduction_quick" if quick else "reproduction")
    cells = plan(names, scale, scale.trainings if seeds is None else seeds)
    try:
        interrupts.check()
        with terminal.Reproducing(cells) as watch:
            done = reproduce(cells, folder, scale, watch)
    except KeyboardInterrupt:
        _say(f"nestbed: stopped; finished cells are kept in {folder}. Continue with", sys.stderr)
        _say(f"  {shlex.join(['nestbed', *sys.argv[1:]])}", sys.stderr)
        sys.exit(interrupts.STATUS)
    page = report.write(done, scale, folder)
    terminal.reproduced([row for row in tables.scores(done) if row.policy in PUBLISHED], report.NAMES)
    _say(f"The report is {page}; tables as CSV and the figures are beside it.")
