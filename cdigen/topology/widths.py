"""The width of a text in the picture of the topology: ``text_width``, ``fitting``.

The font of the viewer is unknown. DejaVu Sans is one of the widest fonts in the picture's list of fonts. A
text that fits in DejaVu Sans also fits in the other fonts.
"""

from __future__ import annotations

# Advance widths in hundredths of the font's size, regular and bold. A group has the largest width of its
# characters. Source: the tables "hmtx" of DejaVuSans.ttf and DejaVuSans-Bold.ttf 2.37.
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
# The widths of all other characters. The widest ASCII character is @ (regular) or W (bold).
_OTHER = (100, 111)
_WIDTHS = {each: (regular, bold) for group, regular, bold in _GROUPS for each in group}


def text_width(text: str, size: int, *, is_bold: bool = False) -> int:
    """Return the maximum width of TEXT in pixels, in a font of SIZE pixels."""
    return -(-sum(_WIDTHS.get(each, _OTHER)[is_bold] for each in text) * size // 100)


def fitting(text: str, width: int, size: int, *, is_bold: bool = False) -> str:
    """Return the start of TEXT that fits into WIDTH pixels, with an ellipsis if it is shortened."""
    if text_width(text, size, is_bold=is_bold) <= width:
        return text
    left = width - text_width("…", size, is_bold=is_bold)
    used = 0
    for place, each in enumerate(text):
        used += _WIDTHS.get(each, _OTHER)[is_bold] * size
        if used > left * 100:
            return f"{text[:place]}…"
    return text
