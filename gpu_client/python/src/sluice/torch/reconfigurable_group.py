"""Class ReconfigurableGroup: a process group that gets new ranks while its processes live. For torch 2.15 and later."""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta
from typing import Any, Optional

import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from ..errors import Error
from . import meeting
from .group_session import SESSIONS, GroupSessions, check_options
from .options import Options
from .process_group import SluiceGroup
from .timeouts import limit


class ReconfigurableGroup(SluiceGroup):
    """Made by init_process_group("sluice", enable_reconfigure=True). It has no connections before reconfigure()."""

    supports_reconfigure = True

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: timedelta, group_options: Optional[Options] = None) -> None:
        super().__init__(store, rank, size, timeout, group_options, enable_reconfigure=True)

    def get_reconfigure_handle(self) -> str:
        """Returns what the other ranks need of this one: the handle of gloo, and where ranks without reducers meet if this one becomes rank 0.

        Raises what would keep this rank from joining a session, such as a key file that cannot be read."""
        try:
            check_options(self.group_options, 0, 1)
        except Error as error:
            raise dist.DistBackendError(f"backend sluice: {error}") from error
        return json.dumps([self._gloo.get_reconfigure_handle(), meeting.meeting_point(meeting.own_addresses(self._store)[0])])

    def reconfigure(self, opts: Any) -> dist.Work:
        """Collective over the ranks of `opts.handles`. Ends the group's sessions, and opens new ones.

        Work in progress fails. A list of handles assigns ranks by position, a set by the order of the handles' texts. Raises
        DistBackendError if a session cannot be opened."""
        if opts.timeout is not None:
            limit(opts.timeout)  # raises
        handles = opts.handles if isinstance(opts.handles, list) else sorted(opts.handles)
        pairs = [json.loads(handle) for handle in handles]
        self._abort_sessions("the process group gets new ranks")
        self._close()
        self._session = self._gathers = self._streams = self._no_streams = None
        inner = c10d.ReconfigureOptions()
        inner.uuid, inner.handles, inner.hints = opts.uuid, [gloo for gloo, _ in pairs], opts.hints
        if opts.timeout is not None:
            inner.timeout = opts.timeout
        work = self._gloo.reconfigure(inner)
        work.wait()
        if len(pairs) > 1:
            ids = [hashlib.sha256(f"sluice {opts.uuid} {index} {handles}".encode()).digest()[:16] for index in range(SESSIONS)]
            point = meeting.with_own_scope(pairs[0][1], meeting.own_addresses(self._store))
            self._open_sessions(GroupSessions(ids, point, self._gloo.rank(), len(pairs), self.group_options), opts.timeout or self._timeout)
        return work
