"""The version of this package, told once."""

from typing import Final

VERSION: Final = "0.1.0"
