"""The demo: scenes of the embedded generator, taken apart, edited and measured."""
