"""Training: losses, objectives, the curriculum, one resumable loop."""
