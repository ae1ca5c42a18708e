"""How broad a text is on the picture of the topology: ``text_width``, ``fitting``.

Which font a viewer has is not known. DejaVu Sans is one of the broadest of those that the picture names, so
what fits with it fits with the others.
"""

from __future__ import annotations

# Advance widths in hundredths of the font's size, regular and bold: the largest of each group, of the tables
# "hmtx" of DejaVuSans.ttf and DejaVuSans-Bold.ttf 2.37.
_GROUPS = (
    ("'ijl", 28, 35),
    (" ,.IJ·", 32, 38),
    ("/:;\\|-f", 37, 45),
    ("!()[]tr", 42, 50),
    ('_`"*?zcs', 55, 60),
    ("Lvxy", 60, 66),
    ("akEFTeo$0123456789hnu{}SYbdgpq", 64, 73),
    ("CPZBAKRVX", 70, 78),
    ("UGDOQ&", 79, 88),
    ("#+<=>HN^~w", 84, 93),
)
# Of every other character: W is the broadest of ASCII.
_OTHER = (100, 111)
_WIDTHS = {each: (regular, bold) for group, regular, bold in _GROUPS for each in group}


def text_width(text: str, size: int, *, is_bold: bool = False) -> int:
    """Return how many pixels TEXT takes at most, in letters of SIZE pixels."""
    return -(-sum(_WIDTHS.get(each, _OTHER)[is_bold] for each in text) * size // 100)


def fitting(text: str, room: int, size: int, *, is_bold: bool = False) -> str:
    """Return as much of TEXT as fits in ROOM pixels, with an ellipsis where something is left out."""
    if text_width(text, size, is_bold=is_bold) <= room:
        return text
    left = room - text_width("…", size, is_bold=is_bold)
    taken = 0
    for place, each in enumerate(text):
        taken += _WIDTHS.get(each, _OTHER)[is_bold] * size
        if taken > left * 100:
            return f"{text[:place]}…"
    return text
