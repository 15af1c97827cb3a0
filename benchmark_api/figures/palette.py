"""Colours and shapes that tell series apart, with any colour vision and without colour."""

COLOURS = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#d55e00",
    "#000000",
    "#f0e442",
)
"""The palette of Okabe and Ito; no two series have the same colour (see `colour_of`)."""

NEUTRAL = "#808080"
"""The colour of series beyond the palette, which shape and label tell apart."""

SHAPES = ("circle", "square", "triangle", "diamond", "triangle-down", "plus", "cross", "bar")
"""Shapes of markers; the series beyond the eighth repeat them in `NEUTRAL`."""


def colour_of(position: int) -> str:
    """Return the colour of a series by its position, from 0 on."""
    return COLOURS[position] if position < len(COLOURS) else NEUTRAL


def shape_of(position: int) -> str:
    """Return the shape of a series' markers by its position, from 0 on."""
    return SHAPES[position % len(SHAPES)]
