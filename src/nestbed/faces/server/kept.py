"""Systems, policies, and what the folder holds, as JSON."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request

from nestbed.faces.server import answers
from nestbed.faces.server.offers import Offers

router = APIRouter(tags=["what there is"])
NONE: dict[int | str, dict[str, Any]] = {404: {"model": answers.Problem, "description": "There is none."}}
Name = Annotated[str, Path(max_length=400, examples=["cart_pole"])]


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


def _add(kind: str, what: str) -> None:
    """Add the two addresses of a kind."""
    one = kind[:-1]

    async def listed(request: Request) -> Any:
        return await asyncio.to_thread(_offers(request).archive.listed, one)

    async def found(name: Name, request: Request) -> Any:
        offers = _offers(request)
        facts = await asyncio.to_thread(offers.archive.facts, one, name)
        if kind == "runs" and facts["finished"]:
            facts["outcome"] = await asyncio.to_thread(offers.outcome, name, facts["changed"])
        if kind == "designs":
            facts["units"] = await asyncio.to_thread(offers.units, facts["system"])
        return {"id": name, **facts}

    words = f"Return the {kind} in the folder, the newest first: {what}."
    router.add_api_route(f"/{kind}", listed, response_model=list[answers.Answer], name=kind, description=words)
    words = f"Return one of the {kind}: {what}."
    own: dict[str, Any] = {"response_model": answers.Answer, "responses": NONE}
    router.add_api_route(f"/{kind}/{{name}}", found, name=one, description=words, **own)


_add("runs", "settings of a training and its curve, and once it has ended who won")
_add("designs", "inputs, and what they and others gain, certified in nats")
_add("comparisons", "the rows of a table")
