"""Files of the Hugging Face Hub, by name."""

from pathlib import Path

from geoco.errors import GeocoError


def is_hub_name(name: str | Path) -> bool:
    """Whether a name has the form of a repository's, user/name."""
    return isinstance(name, str) and name.count("/") == 1 and not name.startswith((".", "/", "~"))


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
