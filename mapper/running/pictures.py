"""A picture as numbers: resized, cropped, scaled and normalised as the settings of its processor say."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapper.errors import FormatError, shorten
from mapper.running.extras import need
from mapper.sources.files import base_name, open_regular

PIXELS = 200_000_000  # of a picture, before it is resized
_SIDE = 16_384  # pixels, the most that settings may ask for
_WARPED = 384  # from this size on, the processors that enlarge below it resize both sides
_FILTERS = {
    "nearest": 0,
    "lanczos": 1,
    "bilinear": 2,
    "bicubic": 3,
}  # Pillow's numbers, which most settings have
_AREAS = (("min_pixels", "shortest_edge"), ("max_pixels", "longest_edge"))  # by both of their names
Settings = dict[str, Any]


def opened(given: Any) -> Any:
    """A picture of Pillow's in three colours, of a path or as it is. Raises FormatError for what is none."""
    library = need("PIL.Image", "pictures")
    if isinstance(given, library.Image):
        return given.convert("RGB")
    if not isinstance(given, (str, Path)):
        raise FormatError(f"a picture is a path or an image of Pillow's, not {type(given).__name__}")
    name = base_name(given)
    file, _ = open_regular(given)
    with file:
        try:
            image = library.open(file)
            if image.width * image.height > PIXELS:
                raise FormatError(
                    f"{name} has {image.width:,} × {image.height:,} pixels, at most {PIXELS:,} are read"
                )
            return image.convert("RGB")
        except FormatError:
            raise
        except Exception as error:  # the library's readers raise whatever a damaged file leads to
            raise FormatError(f"{name} is no picture that can be read: {shorten(str(error))}") from error


def prepared(image: Any, settings: Settings, row: Settings) -> NDArray[np.float32]:
    """The numbers of a picture [3, height, width]. Raises FormatError for settings that mean nothing."""
    try:
        return _prepared(image, settings, row)
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise FormatError(f"the settings of the image processor do not fit together: {error!r}") from error


def _prepared(image: Any, settings: Settings, row: Settings) -> NDArray[np.float32]:
    if asked := [key for key in row.get("refuses", ()) if settings.get(key)]:
        raise ValueError(f"{asked[0]} is not done")
    if settings["do_resize"]:
        image = _resized(image, settings, row)
    pixels: NDArray[Any] = np.asarray(image).transpose(2, 0, 1)
    if crop := _crop(settings, row):
        pixels = centre(pixels, *crop, is_rounded=row.get("rounded", False))
    x = pixels.astype(np.float64)
    if settings["do_rescale"]:
        x = x * settings["rescale_factor"]
    if settings["do_normalize"]:
        mean, std = (
            np.asarray(settings[key], np.float64).reshape(-1, 1, 1) for key in ("image_mean", "image_std")
        )
        x = (x - mean) / std
    if settings["do_flip_channel_order"]:
        x = x[::-1]
    return np.ascontiguousarray(x, np.float32)


def size_of(said: Any, number: str) -> dict[str, int]:
    """A size by its names; one number is the sides of a square or the shortest edge, two are height and width."""
    if isinstance(said, dict):
        return {key: int(value) for key, value in said.items() if value is not None}
    if isinstance(said, (list, tuple)):
        return {"height": int(said[0]), "width": int(said[1])}
    return (
        {"shortest_edge": int(said)}
        if number == "shortest_edge"
        else {"height": int(said), "width": int(said)}
    )


def _resized(image: Any, settings: Settings, row: Settings) -> Any:
    height, width = target(image.height, image.width, size_of(settings["size"], row["number"]), settings, row)
    if not (0 < height <= _SIDE and 0 < width <= _SIDE):
        raise ValueError(f"{height} × {width} pixels are asked for")
    step = row.get("multiple", 1)
    height, width = height - height % step, width - width % step
    filter_ = settings["resample"]
    return image.resize((width, height), resample=_FILTERS[filter_] if filter_ in _FILTERS else int(filter_))


def target(
    height: int, width: int, size: dict[str, int], settings: Settings, row: Settings
) -> tuple[int, int]:
    """Height and width that a picture is resized to."""
    if row.get("packed"):
        return _to_area(height, width, size, settings)
    if "height" in size and "width" in size:
        return _to_sides(height, width, size["height"], size["width"], settings)
    shortest = size["shortest_edge"]
    share = settings["crop_pct"] if row.get("crop") else None
    if share and row["crop"] == "enlarged_below_384" and shortest >= _WARPED:
        return shortest, shortest
    if share:
        shortest = int(shortest / share)
    return _to_shortest(height, width, shortest, size.get("longest_edge"))


def _to_area(height: int, width: int, size: dict[str, int], settings: Settings) -> tuple[int, int]:
    """Both sides to multiples of what is merged to one feature, with an area between two, in about the same proportion."""
    step = int(settings["patch_size"]) * int(settings["merge_size"])
    least, most = (int(settings.get(key) or size[edge]) for key, edge in _AREAS)
    sides = [round(side / step) * step for side in (height, width)]
    if sides[0] * sides[1] > most:
        share = math.sqrt(height * width / most)
        sides = [max(step, math.floor(side / share / step) * step) for side in (height, width)]
    elif sides[0] * sides[1] < least:
        share = math.sqrt(least / (height * width))
        sides = [math.ceil(side * share / step) * step for side in (height, width)]
    return sides[0], sides[1]


def _to_sides(height: int, width: int, to_height: int, to_width: int, settings: Settings) -> tuple[int, int]:
    """Both sides as they are given, or by one factor, the one nearer to 1, to multiples of a number."""
    factors = [to_height / height, to_width / width]
    if settings["keep_aspect_ratio"]:
        factors = [min(factors, key=lambda factor: abs(1 - factor))] * 2
    multiple = int(settings["ensure_multiple_of"])
    found = (
        round(side * factor / multiple) * multiple
        for side, factor in zip((height, width), factors, strict=True)
    )
    first, second = found
    return first, second


def _to_shortest(height: int, width: int, shortest: int, longest: int | None) -> tuple[int, int]:
    """The shorter side as it is given, the other in proportion; less where that is longer than `longest`."""
    exact: float = shortest
    if longest is not None and max(height, width) / min(height, width) * shortest > longest:
        exact = longest * min(height, width) / max(height, width)
    short = round(exact)
    if min(height, width) == short and longest is not None:
        return height, width
    return (short, int(exact * width / height)) if height <= width else (int(exact * height / width), short)


def _crop(settings: Settings, row: Settings) -> tuple[int, int] | None:
    """Height and width that are cut out of the middle; None where nothing is."""
    if row.get("crop") == "enlarged_below_384":
        shortest = size_of(settings["size"], row["number"])["shortest_edge"]
        return (shortest, shortest) if shortest < _WARPED else None
    if not settings["do_center_crop"]:
        return None
    size = size_of(settings["crop_size"], "sides")
    return (size["height"], size["width"]) if "height" in size else (size["shortest_edge"],) * 2


def centre(pixels: NDArray[Any], height: int, width: int, is_rounded: bool = False) -> NDArray[Any]:
    """The middle of a picture [3, H, W], with black around it where it is smaller. -> [3, height, width]

    Where an odd number of rows is left over, one more goes at the end; `is_rounded`: where half of them is even.
    """
    lacks = [max(0, wanted - has) for wanted, has in zip((height, width), pixels.shape[1:], strict=True)]
    around = [(0, 0), *((math.ceil(lack / 2), lack // 2) for lack in lacks)]
    pixels = np.pad(pixels, around)
    over = (pixels.shape[1] - height, pixels.shape[2] - width)
    top, left = (round(rest / 2) if is_rounded else rest // 2 for rest in over)
    return pixels[:, top : top + height, left : left + width]
