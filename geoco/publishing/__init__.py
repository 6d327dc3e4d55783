"""Publishing: a run as a folder that explains itself and can be verified anywhere."""

from geoco.publishing.publish import (
    CARD,
    CONFIG,
    FIRST,
    PIXEL_TOLERANCE,
    PSNR_TOLERANCE,
    Verification,
    make_portable,
    measure_trained_scales,
    publish,
    push_to_hub,
    verify,
)

__all__ = [
    "CARD",
    "CONFIG",
    "FIRST",
    "PIXEL_TOLERANCE",
    "PSNR_TOLERANCE",
    "Verification",
    "make_portable",
    "measure_trained_scales",
    "publish",
    "push_to_hub",
    "verify",
]
