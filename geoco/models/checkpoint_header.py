"""What the header of a checkpoint's file says, checked field by field.

A checksum shows that nothing changed since a file was written, not that it was written by us.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from geoco.errors import GeocoError
from geoco.files import parse_json

FORMAT = 1
Kind = Literal["weights", "state"]
_Text = Annotated[str, Field(max_length=2**18)]


class _Header(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    format: Literal[1]
    step: Annotated[int, Field(ge=0, lt=2**63)]
    extra: dict[_Text, _Text]
    checksum: _Text


class _WeightsHeader(_Header):
    kind: Literal["weights"]
    config: _Text


class _StateHeader(_Header):
    kind: Literal["state"]
    weights: _Text


HEADERS: dict[Kind, type[_Header]] = {"weights": _WeightsHeader, "state": _StateHeader}


def parse_header(text: str, where: str, kind: Kind) -> dict[str, Any]:
    """The fields of a header, or a sentence on what is not right with it."""
    try:
        header = parse_json(text)
    except ValueError:
        header = None
    if not isinstance(header, dict) or "format" not in header:
        raise GeocoError(
            f"{where}: a safetensors file, but not a checkpoint of geoco-savi: its header has no "
            "'geoco' that says which model it belongs to"
        )
    if isinstance(header["format"], int) and header["format"] != FORMAT:
        raise GeocoError(
            f"{where}: a checkpoint of format {str(header['format'])[:20]}, but this version of "
            f"geoco-savi reads format {FORMAT}: install the version that wrote it"
        )
    other = next((name for name in HEADERS if name != kind), None)
    if header.get("kind") == other:
        raise GeocoError(f"{where}: it holds {other}, where {kind} is needed")
    try:
        HEADERS[kind].model_validate_json(text)
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(str(part)[:40] for part in problem["loc"])
        raise GeocoError(
            f"{where}: its header is not that of a checkpoint's {kind} ({place}: "
            f"{problem['msg'][0].lower() + problem['msg'][1:]}): use another checkpoint"
        ) from None
    return header
