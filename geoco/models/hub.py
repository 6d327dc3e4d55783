"""Files of the Hugging Face Hub, by name."""

import re
from pathlib import Path

from geoco.errors import GeocoError

_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def is_hub_name(name: str | Path) -> bool:
    """Whether a name is that of a repository, user/name, and not a path that was mistyped.

    A folder of the user's name says that a path was meant, and so does the ending of a file.
    """
    return (
        isinstance(name, str)
        and _REPOSITORY.fullmatch(name) is not None
        and not name.endswith((".safetensors", ".yaml", ".json"))
        and not Path(name).parent.exists()
    )


def fetch_from_hub(name: str, file: str) -> Path:
    """A file of a repository of the Hub, fetched if it is not here yet."""
    try:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError
    except ModuleNotFoundError:
        raise GeocoError(
            f"{name}: there is no such file, and models of the Hub need huggingface_hub: "
            "pip install 'geoco-savi[hub]'"
        ) from None
    try:
        return Path(hf_hub_download(name, file))
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else "no connection"
        raise GeocoError(
            f"{name}: neither a file nor a model of the Hub that can be reached: {reason}"
        ) from None
