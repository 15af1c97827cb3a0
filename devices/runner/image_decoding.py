"""Images out of an archive as pixels, from 0 (black) to 255 (white) whatever their depth is."""

from __future__ import annotations

import io
import zipfile
from typing import Any, Optional, Tuple

import numpy as np
from numpy.typing import NDArray

from edgeyard.devices.runner.preprocessing import Preprocessing
from edgeyard.errors import RunFailed

MAX_IMAGE_PIXELS = 64 * 1024**2

_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "PPM", "TIFF")
"""What Pillow may take a file for, whatever its name: of PostScript it would start Ghostscript."""

_WHITE_OF_16_BITS = 65535.0
_WHITE_OF_PPM = 65535.0
"""What Pillow makes of the largest number that a deep PGM file states."""
_TIFF_PHOTOMETRIC, _TIFF_BITS, _TIFF_ORIENTATION = 262, 258, 274
_WHITE_IS_ZERO = 0

_BACK_TO_STORED = {
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_90",
    7: "TRANSVERSE",
    8: "ROTATE_270",
}
"""Pillow's name of what turns an upright image back, by its orientation in EXIF."""

_MODES = {
    **dict.fromkeys(("1", "L", "P", "RGB", "RGBX", "CMYK", "YCbCr"), False),
    **dict.fromkeys(("LA", "La", "PA", "RGBA", "RGBa"), True),
}
"""Pillow's modes of up to 8 bits a channel, and whether they have transparency."""

Pixels = NDArray[Any]


class Decoder:
    """Decodes images of an archive in one way and to one size."""

    def __init__(self, what: str, how: Preprocessing, size: Tuple[int, int]) -> None:
        """Decode as a description of the preprocessing states.

        Args:
            what: The archive, for errors: "dataset 'test.zip'".
            how: ``crop``, ``interpolation``, ``color``, ``orientation``, ``alpha``, ``max_value``.
            size: Height and width before ``crop``.

        Raises:
            RunFailed: ``engine_unsupported``: Pillow is not installed.
        """
        try:
            from PIL import Image, ImageOps
        except ImportError as error:
            raise RunFailed(
                "engine_unsupported",
                "image datasets need Pillow on the board's host (pip install pillow); "
                "an .npz with x and y needs nothing",
            ) from error
        self._what, self._how, self._size = what, how, size
        self._image, self._upright = Image, ImageOps.exif_transpose

    def __call__(self, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Pixels:
        """Return an image, shape (height, width, channels), as uint8 or float32.

        Raises:
            RunFailed: ``user_input``: it is damaged, too large, or of a kind that has several
                readings of which none is stated.
        """
        try:
            packed = io.BytesIO(archive.read(info))
            with self._image.open(packed, formats=_FORMATS) as image:
                if image.width * image.height > MAX_IMAGE_PIXELS:
                    raise self._wrong(info, "has too many pixels")
                white, largest = self._white(image, info), _largest_of_pgm(image)
                turned = self._turned(image)
                plain = self._opaque(turned, info) if white is None else turned
                pixels = self._resized(plain, white, largest, info)
        except RunFailed:
            raise
        except Exception as error:  # decoders raise whatever a damaged file leads them to
            raise self._wrong(info, f"can't be decoded: {error}") from error
        return pixels[:, :, ::-1] if self._how.color == "BGR" else pixels

    def _turned(self, image: Any) -> Any:
        """Return an image upright or as it is stored, whichever is wanted."""
        if self._how.orientation == "exif":
            return self._upright(image)
        # Pillow turns TIFF files upright when it loads them, and then forgets how
        tags = getattr(image, "tag_v2", None) or {}
        stored = int(tags.get(_TIFF_ORIENTATION, 1))
        image.load()
        undo = _BACK_TO_STORED.get(stored)
        return image if undo is None else image.transpose(self._image.Transpose[undo])

    def _white(self, image: Any, info: zipfile.ZipInfo) -> Optional[float]:
        """Return the value that is white in an image of one deep channel; None: of 8 bits.

        Raises:
            RunFailed: ``user_input``: the file does not state it.
        """
        if image.mode in _MODES:
            return None
        if not image.mode.startswith(("I", "F")):
            raise self._wrong(info, f"has the mode {image.mode}, which can't become {self._mode}")
        tags = getattr(image, "tag_v2", None) or {}
        if tags.get(_TIFF_PHOTOMETRIC) == _WHITE_IS_ZERO:
            raise self._wrong(info, "has more than 8 bits and 0 for white, which is not supported")
        if "transparency" in image.info and self._how.alpha != "ignore":
            raise self._wrong(
                info,
                "has more than 8 bits and transparent pixels; accepted by preprocessing is that "
                'their own values count, {"alpha": "ignore"}',
            )
        if self._how.max_value is not None:
            return self._how.max_value
        largest = _largest_of_pgm(image)
        if largest is not None:
            return largest
        if image.format == "PNG":  # older versions of Pillow name all 16 bits "I"
            return _WHITE_OF_16_BITS
        if image.mode.startswith("I;16"):
            bits = tags.get(_TIFF_BITS, (16,))
            return float(2 ** int(bits[0] if isinstance(bits, tuple) else bits) - 1)
        kind = "floats" if image.mode == "F" else "whole numbers of 32 bits"
        raise self._wrong(
            info,
            f"has {kind}, and the file does not state which of them is white: state it by "
            'preprocessing: {"max_value": 1.0}, or another number',
        )

    def _opaque(self, image: Any, info: zipfile.ZipInfo) -> Any:
        """Return an image without transparency, in the wanted mode.

        Raises:
            RunFailed: ``user_input``: it is transparent, and nothing states what is behind it.
        """
        if not (_MODES[image.mode] or "transparency" in image.info):
            return image.convert(self._mode)
        layered = image.convert("RGBA")
        if self._how.alpha == "ignore" or layered.getextrema()[3][0] == 255:
            return layered.convert("RGB").convert(self._mode)
        if self._how.alpha is None:
            raise self._wrong(
                info,
                "has transparent pixels: state by preprocessing the colour behind them, "
                '{"alpha": [255, 255, 255]}, or that their own colours count, {"alpha": "ignore"}',
            )
        behind = self._image.new("RGBA", layered.size, (*self._how.alpha, 255))
        return self._image.alpha_composite(behind, layered).convert(self._mode)

    @property
    def _mode(self) -> str:
        return "L" if self._how.color == "L" else "RGB"

    def _resized(
        self,
        image: Any,
        white: Optional[float],
        largest: Optional[float],
        info: zipfile.ZipInfo,
    ) -> Pixels:
        if white is not None:
            values = np.asarray(image)
            if largest is not None:  # back to the numbers of the file
                values = values.astype(np.float64) * largest / _WHITE_OF_PPM
            values = values.astype(np.float32)
            low, high = float(values.min()), float(values.max())
            if not (low >= 0 and high <= white):
                raise self._wrong(
                    info,
                    f"has values from {low:g} to {high:g}; accepted are 0 to {white:g}, or up to "
                    "another preprocessing/max_value",
                )
            image = self._image.fromarray(values * np.float32(255.0 / white))
        height, width = self._size
        method = getattr(self._image.Resampling, self._how.interpolation.upper())
        image = image.resize((width, height), method)
        if self._how.crop is not None:
            inner_height, inner_width = self._how.crop
            top, left = (height - inner_height) // 2, (width - inner_width) // 2
            image = image.crop((left, top, left + inner_width, top + inner_height))
        pixels: Pixels = np.asarray(image)
        if white is not None:
            pixels = pixels.clip(0.0, 255.0)  # bicubic overshoots
        if pixels.ndim == 2:
            pixels = pixels[:, :, None]
            if self._mode == "RGB":
                pixels = np.repeat(pixels, 3, axis=2)
        return pixels

    def _wrong(self, info: zipfile.ZipInfo, reason: str) -> RunFailed:
        return RunFailed("user_input", f"{self._what}: image {info.filename!r} {reason}")


def _largest_of_pgm(image: Any) -> Optional[float]:
    """Return the largest number that a deep PGM file states, before it is loaded; None: others."""
    if image.format != "PPM" or not image.mode.startswith("I"):
        return None
    decoder, _, _, args = image.tile[0]
    return _WHITE_OF_PPM if decoder == "raw" else float(args[-1])  # raw: of 16 bits, not scaled
