"""Streams of torch, cupy and others as the handle that streams.h takes."""

from __future__ import annotations

import sys
from typing import Any, Optional

from .buffers import Buffer


def handle_of(stream: Any, send: Buffer, receive: Buffer) -> Optional[int]:
    """`stream`: torch.cuda.Stream, cupy.cuda.Stream, whatever has __cuda_stream__, a handle, or None. None is torch's current stream on the GPU that
    one of the arrays is on; without torch, or where both lie in host memory, the default stream (None)."""
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
    raise TypeError(f"stream is a {type(stream).__name__}, which has none of cuda_stream, ptr and __cuda_stream__")
