"""Image processors: the tokens of an image of so many pixels."""

from __future__ import annotations

import math

from planner.base.records import record
from planner.specs.model import AudioTower, Resizing, VisionTower


@record(kw_only=True)
class ImageTokens:
    """Tokens that a vision tower makes of one image.

    Parameters
    ----------
    tiles : tiles of the image
    tokens_per_tile : tokens of a tile
    breaks : tokens that end rows
    """

    tiles: int
    tokens_per_tile: int
    breaks: int = 0

    @property
    def tokens(self) -> int:
        """Tokens of the language model."""
        return self.tiles * self.tokens_per_tile + self.breaks


def count_image_tokens(tower: VisionTower, width: int, height: int) -> ImageTokens | None:
    """Return (tiles, tokens) of an image; None for an unknown image processor.

    Parameters
    ----------
    tower : vision tower
    width : width of the image [pixels]
    height : height of the image [pixels]
    """
    side, tile_tokens = tower.patch_size * tower.spatial_merge_size, tower.tokens_per_image
    kind = tower.resizing
    if kind is None:
        return None
    if kind is Resizing.FIXED:
        return ImageTokens(tiles=1, tokens_per_tile=tile_tokens)
    if kind is Resizing.PIXELS:
        min_pixels, max_pixels = tower.min_pixels, tower.max_pixels
        across, down = _scaled(
            width, height, side=side, min_pixels=min_pixels, max_pixels=max_pixels
        )
        return ImageTokens(tiles=1, tokens_per_tile=across * down)
    if kind is Resizing.EDGE:
        ratio = max(max(width, height) / tower.longest_edge, 1.0)
        across, down = (max(math.ceil(length // ratio / side), 1) for length in (width, height))
        return ImageTokens(tiles=1, tokens_per_tile=across * down, breaks=down)
    count = _canvas_tiles if kind is Resizing.CANVAS else _ratio_tiles
    tiles = count(width, height, side=tower.image_size, max_tiles=tower.max_tiles)
    return ImageTokens(tiles=tiles + (tiles > 1), tokens_per_tile=tile_tokens)


def audio_tokens(tower: AudioTower, seconds: float) -> int:
    """Return the tokens of a sound of ``seconds`` [s].

    Parameters
    ----------
    tower : audio tower
    seconds : duration of the sound [s]
    """
    return max(round(seconds * tower.frames_per_second) // tower.frames_per_token, 1)


def tiles_of(tower: VisionTower, tokens: float) -> float:
    """Return how many tiles (tower inputs) an image of ``tokens`` has; 1 without tiling.

    Parameters
    ----------
    tower : vision tower
    tokens : tokens of an image
    """
    return max(tokens / tower.tokens_per_image, 1.0) if tower.max_tiles else 1.0


def _scaled(
    width: int, height: int, *, side: int, min_pixels: int, max_pixels: int
) -> tuple[int, int]:
    """Return (tokens across, down) of an image scaled to ``min_pixels`` to ``max_pixels``.

    ``side``: pixels of a token.
    """
    across, down = round(width / side), round(height / side)
    pixels = across * down * side**2
    if pixels > max_pixels:
        scale = math.sqrt(width * height / max_pixels)
        across, down = (math.floor(length / scale / side) for length in (width, height))
    elif pixels < min_pixels:
        scale = math.sqrt(min_pixels / (width * height))
        across, down = (math.ceil(length * scale / side) for length in (width, height))
    return max(across, 1), max(down, 1)


def _canvas_tiles(width: int, height: int, *, side: int, max_tiles: int) -> int:
    """Return the tiles of the canvas that scales an image up least, up to ``max_tiles``.

    If the image is larger than all canvases, the one that scales it down least; of several the
    smallest.
    """
    shapes = [(n, tiles // n) for tiles in range(1, max_tiles + 1) for n in range(1, tiles + 1)
              if tiles % n == 0]  # fmt: skip
    scales = {
        (across, down): min(across * side / width, down * side / height) for across, down in shapes
    }
    larger = [scale for scale in scales.values() if scale >= 1]
    chosen = min(larger) if larger else max(scales.values())
    return min(across * down for (across, down), scale in scales.items() if scale == chosen)


def _ratio_tiles(width: int, height: int, *, side: int, max_tiles: int) -> int:
    """Return the tiles of the grid with the nearest aspect ratio, up to ``max_tiles``.

    Of several, the largest one such that the image has more than half of the grid's pixels.
    """
    shapes = sorted(
        (
            (across, down)
            for across in range(1, max_tiles + 1)
            for down in range(1, max_tiles // across + 1)
        ),
        key=lambda shape: shape[0] * shape[1],
    )
    best, smallest = (1, 1), math.inf
    for across, down in shapes:
        difference = abs(width / height - across / down)
        fills = width * height > side**2 * across * down / 2
        if difference < smallest or (difference == smallest and fills):
            best, smallest = (across, down), difference
    return best[0] * best[1]
