"""GeoCo-SAVi: slots with explicit appearance, position and scale that obey commands."""
