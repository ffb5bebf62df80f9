"""Of the package; a test holds it to the tree's VERSION. By itself, so that a build of the wheel reads it without the library."""

__version__ = "0.1.0"
