"""What requests bring, checked: types, sizes and names; units are those of the system."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

ID = r"^[a-z0-9][a-z0-9_-]{0,63}$"
"""What a session may be called."""
LONGEST, MOST_PARTICLES, FASTEST = 10_000, 4096, 100.0
"""Experiments, particles, and experiments of a simulated rig per second, at most."""

Number = Annotated[float, Field(allow_inf_nan=False, ge=-1e9, le=1e9)]
Positive = Annotated[float, Field(allow_inf_nan=False, gt=0.0, le=1e9)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Named = Annotated[dict[Name, Number], Field(max_length=100)]
Readings = Annotated[dict[Name, Number | None], Field(max_length=100)]


class Form(BaseModel):
    """Nothing is converted, and nothing that is not known is taken."""

    model_config = ConfigDict(strict=True, extra="forbid")


class Rig(Form):
    """A simulated rig: the model itself, with true parameters that the session does not know."""

    theta: Named = Field({}, description="True parameters by name, in their units; those not named are drawn.")
    rate: Annotated[float, Field(allow_inf_nan=False, gt=0.0, le=FASTEST)] = Field(
        5.0, description="Experiments per second while it plays by itself."
    )
    play: bool = Field(False, description="Whether it begins to play at once.")


class Start(Form):
    """What a new session is to be: of a system with a policy by name, of a run's policy, or of a design's inputs."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"id": "monday", "system": "nonlinear_pendulum", "policy": "prbs", "horizon": 50, "seed": 0},
                {"system": "heater", "policy": "chirp", "rig": {"theta": {}, "rate": 5.0, "play": True}},
            ]
        }
    )
    id: str | None = Field(
        None,
        pattern=ID,
        description="What it is to be called. The same request again answers as before, so that a retry does no harm.",
    )
    title: Annotated[str, Field(max_length=80)] | None = Field(None, description="For people.")
    system: Name | None = Field(None, description="One of GET /systems.")
    policy: Name | None = Field(None, description="One of GET /policies, with a system; by default prbs.")
    run: Name | None = Field(None, description="The id of a training in GET /runs, whose policy is taken.")
    design: Name | None = Field(None, description="The id of a design in GET /designs, whose inputs are taken.")
    horizon: Annotated[int, Field(ge=1, le=LONGEST)] | None = Field(
        None, description="Experiments that are planned; by default the policy's own, or the system's."
    )
    particles: Annotated[int, Field(ge=16, le=MOST_PARTICLES)] = Field(512, description="Of the belief.")
    risk: Annotated[float, Field(gt=0.0, lt=1.0)] = Field(
        0.01,
        description="Probability with which a limit may be broken within the session; designs are changed for it.",
    )
    gaps: bool = Field(
        False, description="Whether samples may be missing or come at uneven times; saves compiling then."
    )
    watchdog: Positive | None = Field(
        None, description="Seconds after the last measurement beyond which the rest design is suggested."
    )
    stop_below: Positive | None = Field(
        None, description="Nats expected of the remaining experiments below which the session is done."
    )
    target_sd: Annotated[dict[Name, Positive], Field(max_length=100)] = Field(
        {}, description="Standard deviations by parameter, in its unit, at which the session is done."
    )
    seed: Annotated[int, Field(ge=0, lt=2**32)] | None = Field(
        None, description="Of all randomness; drawn if not given."
    )
    rig: Rig | None = Field(None, description="A simulated rig; none: measurements come from outside.")

    def settings(self) -> dict[str, Any]:
        """Return all of it as plain values, the id left out."""
        return self.model_dump(exclude={"id"})


class Measurement(Form):
    """What was seen after a design."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"step": 1, "y": {"angle": 0.012, "velocity": 0.31}}]},
    )
    step: Annotated[int, Field(ge=0, le=2**31)] = Field(
        description="That of the design it answers, from GET /sessions/{id}/design; 0: what is seen before any design. "
        "The same step again with the same numbers answers as before; with others, or out of order, it is refused."
    )
    y: Readings = Field(description="Every sensor by name, in its unit; null: not measured.")
    applied: Named | None = Field(
        None, description="Every design as it was really applied, in its unit; by default the one suggested."
    )
    time: Number | None = Field(
        None, description="When it was seen, in the model's unit of time; by default one step after the last."
    )


class Ending(Form):
    """Why a session is ended."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"why": "smoke"}]})
    why: Annotated[str, Field(min_length=1, max_length=200, description="For the record.")] = "asked for"


class Extension(Form):
    """How many experiments are planned in all."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"horizon": 80}]})
    horizon: Annotated[int, Field(ge=1, le=LONGEST)]


class Playing(Form):
    """What a simulated rig is to do."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"play": True, "rate": 10.0}]})
    play: bool = Field(description="Whether it plays by itself.")
    rate: Annotated[float, Field(allow_inf_nan=False, gt=0.0, le=FASTEST)] | None = Field(
        None, description="Experiments per second; by default as before."
    )
