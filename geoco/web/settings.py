"""What the server allows: sizes, numbers and times."""

from dataclasses import dataclass

from geoco.media import LIMITS, Limits

MEBIBYTE = 2**20


@dataclass(frozen=True)
class Settings:
    """Limits. The defaults suit one person, or a class of them, on one machine."""

    hosts: tuple[str, ...] = ("127.0.0.1", "localhost")  # names that the server answers to
    # Sessions. What exceeds the memory is dropped and computed again when it is asked for.
    sessions: int = 16
    idle_seconds: float = 1800  # until a session expires
    crowded_seconds: float = 300  # the same, when there are too many
    empty_seconds: float = 20  # the same, where nothing was opened in it yet
    session_bytes: int = 512 * MEBIBYTE
    all_bytes: int = 2048 * MEBIBYTE  # of sessions, of what is computed now, of what comes in
    drawing_bytes: int = 1024 * MEBIBYTE  # of these, for drawing at the pictures' own size
    states: int = 300
    edits: int = 500  # of one scene
    # What comes in.
    upload_bytes: int = 32 * MEBIBYTE
    request_bytes: int = MEBIBYTE // 4
    incoming_bytes: int = 256 * MEBIBYTE  # of all requests that are not answered yet
    silent_seconds: float = 10  # that a client may keep a request waiting for its next part
    request_seconds: float = 120  # for a whole request to come in
    ending_seconds: int = 2  # for requests to be answered when the server is told to end
    reading: Limits = LIMITS  # as everywhere: pixels, frames and time
    film_frames: int = 32  # that are kept of a video's, evenly spaced
    # Work at once: computed, and waiting to be.
    workers: int = 2
    waiting: int = 24
