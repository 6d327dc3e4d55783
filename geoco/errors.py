"""The one exception that users see: one sentence, what was wrong and what would be right."""


class GeocoError(ValueError):
    """Bad input. The command line prints its message alone and exits with status 2."""
