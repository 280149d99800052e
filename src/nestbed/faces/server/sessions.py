"""Sessions as JSON: for the page, and for any program beside a rig."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response

from nestbed.faces.server import answers, reporting
from nestbed.faces.server.desk import Desk
from nestbed.faces.server.forms import ID, Ending, Extension, Measurement, Playing, Start
from nestbed.faces.server.hosted import PATIENCE
from nestbed.faces.server.refusal import RETRY, RefusedError, conflict, unready

router = APIRouter(prefix="/sessions", tags=["sessions"])
Id = Annotated[str, Path(pattern=ID, description="Of a session, from GET /sessions.", examples=["monday"])]
Wait = Annotated[float, Query(ge=0.0, le=PATIENCE, description="Seconds to wait for it; then 503, to ask again.")]
MISSING: dict[int | str, dict[str, Any]] = {404: {"model": answers.Problem, "description": "There is none."}}
BUSY: dict[int | str, dict[str, Any]] = {
    409: {"model": answers.Problem, "description": "It does not go with what was done before."},
    503: {"model": answers.Problem, "description": f"It is not ready; ask again in {RETRY} s."},
}


def _desk(request: Request) -> Desk:
    found: Desk = request.app.state.desk
    return found


@router.get("", response_model=list[answers.Summary])
async def sessions(request: Request) -> Any:
    """Return all sessions, the newest first."""
    return _desk(request).summaries()


@router.post(
    "",
    status_code=201,
    response_model=answers.Session,
    responses={
        **MISSING,
        **BUSY,
        200: {"model": answers.Session, "description": "There is one of this id and these settings already."},
        429: {"model": answers.Problem, "description": "There are too many."},
    },
)
async def start(form: Start, request: Request, response: Response) -> Any:
    """Begin a session: it is prepared in the background, where programs are compiled that were not used before."""
    hosted, new = await _desk(request).begin(form)
    if not new:
        response.status_code = 200
    return {**hosted.summary(), "setup": hosted.setup}


@router.get("/{id}", response_model=answers.Session, responses={**MISSING, **BUSY})
async def session(id: Id, request: Request) -> Any:
    """Return what is known of a session, without its posterior; it is opened if it was closed."""
    hosted = _desk(request).hosted(id)
    return {**hosted.summary(), "setup": hosted.setup}


@router.get("/{id}/design", response_model=answers.Design, responses={**MISSING, **BUSY})
async def design(id: Id, request: Request, wait: Wait = PATIENCE) -> Any:
    """Return the next design, the same until its measurement comes.

    The first time, a session without a first measurement (step 0) begins without one. An ended session answers with
    its rest design at once.
    """
    hosted = _desk(request).hosted(id)
    if hosted.facts.ending is not None and (rest := hosted.rest) is not None:
        return {"step": int(hosted.summary()["step"]) + 1, "design": rest, "done": hosted.over}
    return await hosted.run(hosted.design, wait)


@router.post("/{id}/measurements", response_model=answers.Taken, responses={**MISSING, **BUSY})
async def measure(id: Id, form: Measurement, request: Request) -> Any:
    """Take in what was seen after a design. Once this is answered, it is on disk.

    Where no answer comes, or 503, send the same again: a step counts once. The same step with other numbers, and a step
    out of order, are refused with 409, numbers that cannot be meant with 422; nothing is lost by it.
    """
    hosted = _desk(request).hosted(id)
    return await hosted.run(lambda: hosted.measure(form))


@router.get("/{id}/posterior", response_model=answers.Posterior, responses={**MISSING, **BUSY})
async def posterior(id: Id, request: Request, wait: Wait = PATIENCE) -> Any:
    """Return what is known of the parameters and the states by now."""
    hosted = _desk(request).hosted(id)
    return await hosted.run(hosted.posterior, wait)


@router.get("/{id}/course", response_model=list[answers.Answer], responses={**MISSING, **BUSY})
async def course(id: Id, request: Request, since: Annotated[int, Query(ge=0, le=2**31)] = 0) -> Any:
    """Return how it went, a line for each step from `since` on.

    `y` and `u` are what was seen and applied, `parameters` have mean, standard deviation and 95 %, `states` that are
    hidden mean and standard deviation, `next` mean and 95 % of what was predicted for the next step, and
    `predicted` of this one where another design was applied than was suggested.
    """
    return [line for line in _desk(request).hosted(id).course.lines if line["step"] >= since]


@router.get("/{id}/expected", responses={**MISSING, **BUSY})
async def expected(id: Id, request: Request) -> dict[str, Any]:
    """Return what the session was expected to gain, and what random inputs would, in nats after each experiment.

    It is computed in the background once it was asked for; `state` says how far that is.
    """
    desk = _desk(request)
    hosted = desk.hosted(id)
    desk.expect(hosted)
    return hosted.expected or {"state": "waiting"}


@router.post("/{id}/abort", response_model=answers.Aborted, responses={**MISSING, **BUSY})
async def abort(id: Id, request: Request, form: Ending | None = None) -> Any:
    """End a session for good: the rest design is to be applied now. Once this is answered, it is kept."""
    hosted = _desk(request).hosted(id)
    hosted.end((form or Ending()).why)
    return {"aborted": hosted.facts.ending, "design": hosted.rest}


@router.post("/{id}/horizon", response_model=answers.Session, responses={**MISSING, **BUSY})
async def extend(id: Id, form: Extension, request: Request) -> Any:
    """Plan for as many experiments in all."""
    hosted = _desk(request).hosted(id)
    await hosted.run(lambda: hosted.extend(form.horizon))
    return {**hosted.summary(), "setup": hosted.setup}


@router.post("/{id}/rig", response_model=answers.Session, responses={**MISSING, **BUSY})
async def rig(id: Id, form: Playing, request: Request) -> Any:
    """Let a simulated rig play by itself, or pause it."""
    desk = _desk(request)
    hosted = desk.hosted(id)
    if hosted.facts.start.get("rig") is None:
        raise conflict("this session has no simulated rig; its measurements come from outside.")
    hosted.steer(form.play, form.rate)
    if form.play:
        desk.play(id)
    return {**hosted.summary(), "setup": hosted.setup}


@router.get(
    "/{id}/record.csv", responses={**MISSING, **BUSY, 200: {"content": {"text/csv": {}}}}, response_class=Response
)
async def record(id: Id, request: Request) -> Response:
    """Return what was seen and applied, a row for each observation, as CSV."""
    hosted = _desk(request).hosted(id)
    return _file(await hosted.run(lambda: reporting.record(hosted)), "text/csv", f"{id}.csv")


@router.get(
    "/{id}/report.html", responses={**MISSING, **BUSY, 200: {"content": {"text/html": {}}}}, response_class=Response
)
async def report(id: Id, request: Request) -> Response:
    """Return what the session tells by now, on one page that needs nothing else; 503 while it is made."""
    desk = _desk(request)
    hosted = desk.hosted(id)
    made = await hosted.run(lambda: reporting.report(hosted, desk.background))
    if not made.page.done():
        raise unready(f"the report of {id} is being made")
    try:
        page = made.page.result()
    except Exception as error:
        hosted.report = None
        raise RefusedError(409, f"the report cannot be made: {error}") from error
    return _file(page, "text/html; charset=utf-8", f"{id}.html")


def _file(data: bytes, kind: str, name: str) -> Response:
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    if kind.startswith("text/html"):
        headers["content-security-policy"] = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    return Response(data, media_type=kind, headers=headers)
