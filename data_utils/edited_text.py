"""A text without some of its bytes."""

import dataclasses
import hashlib
from typing import Any


@dataclasses.dataclass(frozen=True)
class EditedText:
    """Another source of text, less what the original program loses of it.

    Args:
        source: a `data_utils.text_sources` source.
        dropped: bytes that are left out wherever they stand; enwik8's line ends, b"\\n".
        stripped: bytes that are left out at both ends of the text; text8's blanks, b" ".

    Attributes:
        name: that of the source.
    """

    source: Any
    dropped: bytes = b""
    stripped: bytes = b""

    @property
    def name(self):
        return self.source.name

    def blocks(self, *size):
        """Yields what is left of the source's blocks, none of them empty."""
        begun, held = False, b""  # held: bytes that are left out if the text ends here
        for block in self.source.blocks(*size):
            block = held + block.translate(None, self.dropped)
            block = block if begun or not self.stripped else block.lstrip(self.stripped)
            kept = block.rstrip(self.stripped) if self.stripped else block
            held = block[len(kept):]
            if kept:
                begun = True
                yield kept

    def sha256(self):
        """Returns the hex sha256 over the source's digest and what is left out."""
        return hashlib.sha256(repr((self.source.sha256(), self.dropped, self.stripped)).encode("ascii")).hexdigest()
