"""Erasure codes and their I/O plans: what to read, and how to make lost chunks of it."""

from ._claystone import ClaystoneError, Code, Conversion, Plan, Read, Unrecoverable, __version__, force_tier

__all__ = ["ClaystoneError", "Code", "Conversion", "Plan", "Read", "Unrecoverable", "__version__", "force_tier"]
