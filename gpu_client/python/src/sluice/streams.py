"""Converts streams of PyTorch, CuPy and other libraries to the handles of streams.h."""

from __future__ import annotations

import sys
from typing import Any, Optional

from .buffers import Buffer


def stream_handle(stream: Any, send: Buffer, receive: Buffer) -> Optional[int]:
    """Returns the handle of a torch.cuda.Stream, a cupy.cuda.Stream, an object with __cuda_stream__, or an integer handle.

    None means torch's current stream on the GPU of the arrays. Without torch, or if both arrays are in host memory, it
    means the default stream, for which the function returns None."""
    if stream is None:
        device = send.device if send.device is not None else receive.device
        torch = sys.modules.get("torch")
        if device is None or torch is None or not torch.cuda.is_initialized():
            return None
        return int(torch.cuda.current_stream(device).cuda_stream) or None
    if isinstance(stream, int):
        return stream or None
    for name in ("cuda_stream", "ptr"):
        if hasattr(stream, name):
            return int(getattr(stream, name)) or None
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1]) or None
    raise TypeError(f"stream is a {type(stream).__name__}; expected a handle or an object with cuda_stream, ptr or __cuda_stream__")
