"""What was inferred, in the form that ArviZ takes."""

import warnings
from typing import Any

from nestbed.numerics.errors import NestbedError


def inference_data(groups: dict[str, Any]) -> Any:
    """Return groups of arrays by name, each (chain, draw, …), as ArviZ has them, whichever of its versions there is."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what a later ArviZ will do
            import arviz
    except ImportError:
        raise NestbedError("this needs the package arviz: pip install 'nestbed[arviz]'.") from None
    new = int(str(arviz.__version__).partition(".")[0]) >= 1  # which takes groups as one dictionary
    return arviz.from_dict(groups) if new else arviz.from_dict(**groups)
