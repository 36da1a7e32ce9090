"""Samovar: an inference system that keeps every agent's context warm."""

__version__ = "0.1.0"
