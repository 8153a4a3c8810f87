"""Dual encoders for a CPU, with the vocabulary of CLIP, as open_clip configurations."""

from __future__ import annotations

from typing import Any

SIZES: dict[str, dict[str, Any]] = {
    "small": {
        "embed_dim": 128,
        "vision_cfg": {
            "image_size": 64,
            "layers": 4,
            "width": 128,
            "head_width": 32,
            "patch_size": 8,
        },
        "text_cfg": {
            "context_length": 32,
            "vocab_size": 49408,
            "width": 128,
            "heads": 4,
            "layers": 3,
        },
    },
    "large": {
        "embed_dim": 256,
        "vision_cfg": {
            "image_size": 96,
            "layers": 6,
            "width": 384,
            "head_width": 64,
            "patch_size": 16,
        },
        "text_cfg": {
            "context_length": 32,
            "vocab_size": 49408,
            "width": 256,
            "heads": 4,
            "layers": 4,
        },
    },
}
