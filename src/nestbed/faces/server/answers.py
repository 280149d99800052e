"""What requests are answered with, for the description of the interface; numbers are null where there is none."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Answer(BaseModel):
    """More may be in an answer than is described."""

    model_config = ConfigDict(extra="allow")


class Problem(Answer):
    """Why something was not done."""

    error: str = Field(description="One sentence: what was got, what was expected, what to do.")


class Named(Answer):
    """A thing to choose."""

    name: str
    help: str


class Summary(Answer):
    """A session."""

    id: str
    title: str
    system: str = ""
    source: str = Field("", description="What chooses its designs: a policy by name, or the run or design it is of.")
    state: str = Field(
        description="preparing, waiting, playing, done, aborted, failed, or closed until it is asked for."
    )
    simulated: bool = Field(False, description="Whether measurements come from a simulated rig.")
    step: int | None = Field(None, description="Experiments that are done.")
    horizon: int | None = Field(None, description="Experiments that are planned.")
    gain: float | None = Field(None, description="What they have told so far, in nats.")
    created: float = Field(0.0, description="When it was begun, in seconds since 1970.")
    failure: str = Field("", description="Why it cannot go on, if it cannot.")


class Session(Summary):
    """All that is known of a session without its posterior."""

    begun: bool = Field(False, description="Whether there was a first observation, or the first design was asked for.")
    done: str | None = Field(None, description="Why there is nothing more to do.")
    aborted: str | None = Field(None, description="Why it was ended.")
    warnings: list[str] = Field([], description="What the one who watches should know, in order.")
    setup: dict[str, Any] | None = Field(
        None, description="Names, units, limits and priors; null while it is prepared."
    )
    truth: dict[str, float] | None = Field(None, description="True parameters of a simulated rig, once it is over.")


class Design(Answer):
    """What to do next."""

    step: int = Field(description="The number that the measurement after this design is to have.")
    design: dict[str, float] = Field(
        description="Each design by name, in its unit; the rest design if there is no more."
    )
    done: str | None = Field(None, description="Why there is nothing more to do; null: there is.")


class Taken(Answer):
    """What a measurement came to; the same however often it is sent."""

    step: int
    gain: float | None = Field(None, description="What it told, in nats.")
    total: float | None = Field(None, description="What all up to it have told, in nats.")
    p: dict[str, float | None] = Field({}, description="How often chance alone brings a reading as far off, by sensor.")


class Parameter(Answer):
    """What is known of one parameter, in its unit."""

    name: str
    unit: str
    mean: float | None
    sd: float | None = Field(description="Standard deviation.")
    interval: list[float | None] = Field(description="From the 2.5 % to the 97.5 % quantile.")
    density: dict[str, list[float]] = Field(description="Places and the density there, to be drawn.")


class Posterior(Answer):
    """What is known after so many experiments."""

    step: int
    gain: float | None = Field(description="In nats.")
    parameters: list[Parameter]
    correlation: list[dict[str, Any]] = Field(description="Of pairs of parameters, from -1 to 1.")
    states: list[dict[str, Any]] = Field(description="Mean and standard deviation of each state now, in its unit.")


class Aborted(Answer):
    """An ended session."""

    aborted: str = Field(description="Why it was ended.")
    design: dict[str, float] | None = Field(
        description="The rest design, to be applied now; null while it is prepared."
    )
