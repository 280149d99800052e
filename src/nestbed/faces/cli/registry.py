"""The commands there are, by name."""

from nestbed.numerics.registry import Entry, Registry

COMMANDS = Registry(
    "command",
    Entry("systems", "nestbed.faces.cli.systems:systems", "List the built-in systems."),
    Entry("design", "nestbed.faces.cli.design:design", "Find the inputs that tell most, in seconds."),
    Entry("export", "nestbed.faces.cli.export:export", "Write a policy as files that run without nestbed."),
    Entry("report", "nestbed.faces.cli.report:report", "Write one page about a run, a session or a design."),
    Entry("posterior", "nestbed.faces.cli.posterior:posterior", "Infer parameters from records you measured (CSV)."),
    Entry("run", "nestbed.faces.cli.run:run", "Run the best inputs on a rig while the posterior sharpens."),
    Entry("serve", "nestbed.faces.cli.serve:serve", "Sessions as a page to steer by, and as JSON for any program."),
    Entry("new", "nestbed.faces.cli.new:new", "Write a system of your own to start from."),
    Entry("check", "nestbed.faces.cli.check:check", "Say what looks wrong with a system of your own."),
    Entry("config", "nestbed.faces.cli.config:config", "Print the settings of a training, to change and give back."),
    Entry("train", "nestbed.faces.cli.train:train", "Learn a policy that chooses the most informative inputs."),
    Entry("show", "nestbed.faces.cli.show:show", "Print training runs and draw their curves."),
    Entry("evaluate", "nestbed.faces.cli.evaluate:evaluate", "Estimate what one policy gains, between two bounds."),
    Entry("compare", "nestbed.faces.cli.compare:compare", "Compare what policies gain about a system's parameters."),
)
"""Each is imported when it is called, or when its own help is asked for; those files load jax only as they run."""
