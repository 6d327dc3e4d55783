"""Slot models and their parts: encoders, slots, decoders, selector, temporal initializer."""
