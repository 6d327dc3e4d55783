"""Publishing: a run as a folder that explains itself and can be verified anywhere."""

from geoco.publishing.publish import (
    CARD,
    CONFIG,
    FIRST,
    PIXEL_TOLERANCE,
    PSNR_TOLERANCE,
    Verification,
    portable,
    publish,
    push_to_hub,
    trained_scales,
    verify,
)

__all__ = [
    "CARD",
    "CONFIG",
    "FIRST",
    "PIXEL_TOLERANCE",
    "PSNR_TOLERANCE",
    "Verification",
    "portable",
    "publish",
    "push_to_hub",
    "trained_scales",
    "verify",
]
