"""Systems, policies, and what the folder holds, as JSON."""

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Request

from nestbed.faces.server import answers
from nestbed.faces.server.offers import Offers

router = APIRouter(tags=["what there is"])
NONE: dict[int | str, dict[str, Any]] = {404: {"model": answers.Problem, "description": "There is none."}}
Name = Annotated[str, Path(max_length=400, examples=["cart_pole"])]
Kind = Literal["runs", "designs", "comparisons"]


def _offers(request: Request) -> Offers:
    found: Offers = request.app.state.desk.offers
    return found


@router.get("/systems", response_model=list[answers.Named])
async def systems(request: Request) -> Any:
    """Return the systems that sessions can be of."""
    return _offers(request).systems()


@router.get("/systems/{name}", response_model=answers.Answer, responses=NONE)
async def system(name: Name, request: Request) -> Any:
    """Return names, units, limits and priors of a system."""
    return await asyncio.to_thread(_offers(request).about, name)


@router.get("/policies", response_model=list[answers.Named])
async def policies(request: Request) -> Any:
    """Return what can choose the designs of a session, by name."""
    return _offers(request).policies()


@router.get("/{kind}", response_model=list[answers.Answer])
async def kept(kind: Kind, request: Request) -> Any:
    """Return the trainings, designs or comparisons in the folder, the newest first."""
    return await asyncio.to_thread(_offers(request).archive.listed, kind[:-1])


@router.get("/{kind}/{name}", response_model=answers.Answer, responses=NONE)
async def one(kind: Kind, name: Name, request: Request) -> Any:
    """Return one of them: curves and settings of a training, inputs and certificates of a design, rows of a table."""
    offers = _offers(request)
    facts = await asyncio.to_thread(offers.archive.facts, kind[:-1], name)
    if kind == "runs" and facts["finished"]:
        facts["outcome"] = await asyncio.to_thread(offers.outcome, name, facts["changed"])
    return {"id": name, **facts}
