"""The torch.distributed backend "sluice": dense collectives run through reducers, everything else through gloo.

    import sluice.torch  # not needed where torch loads backends by entry points
    torch.distributed.init_process_group("sluice")

SLUICE_REDUCERS and the other variables of libsluice choose the reducers. Without any, the ranks reduce by themselves."""

from __future__ import annotations

import torch
import torch.distributed as dist

from ..errors import Unsupported
from .devices.device_map import NAME
from .options import Options

__all__ = ["NAME", "Options", "register"]

_OLDEST = "2.4"  # the first release of torch of which the backend is tested


def register() -> None:
    """Registers the backend with torch.distributed; has no effect if it is registered.

    Called on import and by torch's entry point. Raises sluice.Unsupported if this torch is too old, or has no distributed
    package or no gloo."""
    if list(map(int, torch.__version__.split(".")[:2])) < list(map(int, _OLDEST.split("."))):
        raise Unsupported(f"torch {torch.__version__} is too old: the backend {NAME!r} needs torch {_OLDEST} or later")
    if not dist.is_available() or not dist.is_gloo_available():
        raise Unsupported(f"torch {torch.__version__} was built without torch.distributed or gloo: the backend {NAME!r} needs torch {_OLDEST} or later with both")
    if NAME in dist.Backend.backend_list:
        return
    from .creation import create

    dist.Backend.register_backend(NAME, create, extended_api=True, devices=["cpu", "cuda"])


register()
