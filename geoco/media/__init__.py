"""Pictures and videos in and out; the only place that decodes their files.

In: `read_picture` and `read_video` take whatever a user brings, `iterate_video` one frame at a
time; `read_image` and `decode_video` a file; `decode_image`, `decode_video_bytes` and
`iterate_video_bytes` bytes, as of web uploads. `Limits` bound all of them. `fit_frame` brings a
frame to a model's size: the largest centred square, resized and antialiased; nothing is stretched.
Out: `save_frames` and `encode_png`.
"""

from geoco.media.fitting import center_box, fit_frame, fit_frames, to_bytes, to_tensor
from geoco.media.folders import IMAGES, VIDEOS, find_images, is_file, list_folder
from geoco.media.limits import ANY_LENGTH, LIMITS, Limits, TooLargeError
from geoco.media.pictures import (
    DAMAGE,
    Picture,
    decode_image,
    read_image,
    read_picture,
)
from geoco.media.videos import (
    ANIMATIONS,
    Pictures,
    decode_video,
    decode_video_bytes,
    is_animation,
    is_video,
    iterate_video,
    iterate_video_bytes,
    read_video,
)
from geoco.media.writing import (
    FASTEST,
    SLOWEST,
    check_rate,
    check_target,
    encode_animated_png,
    encode_png,
    save_frames,
)

__all__ = [
    "ANIMATIONS",
    "ANY_LENGTH",
    "DAMAGE",
    "FASTEST",
    "IMAGES",
    "LIMITS",
    "SLOWEST",
    "VIDEOS",
    "Limits",
    "Picture",
    "Pictures",
    "TooLargeError",
    "center_box",
    "check_rate",
    "check_target",
    "decode_image",
    "decode_video",
    "decode_video_bytes",
    "encode_animated_png",
    "encode_png",
    "find_images",
    "fit_frame",
    "fit_frames",
    "is_animation",
    "is_file",
    "is_video",
    "iterate_video",
    "iterate_video_bytes",
    "list_folder",
    "read_image",
    "read_picture",
    "read_video",
    "save_frames",
    "to_bytes",
    "to_tensor",
]
