"""Class FindingReader: takes the findings of a session's operations from the library."""

from __future__ import annotations

import ctypes
import threading
from typing import Optional

from . import _library
from .errors import UnhealthyGradient
from .findings import Finding, OnFinding

_KINDS = {1: "non_finite", 2: "outlier", 3: "zeros"}
_MAX_UNCLAIMED = 16384  # findings of operations that have not ended for the caller; more than can be in flight


class FindingReader:
    """Takes the findings of a session from the library and gives them to the operations that they belong to."""

    def __init__(self, on_finding: OnFinding) -> None:
        if not (on_finding is None or on_finding == "raise" or callable(on_finding)):
            raise ValueError(f"on_finding is {on_finding!r}; expected None, 'raise' or a function")
        self._on_finding = on_finding
        self._lock = threading.Lock()
        self._unclaimed: dict[int, _library.Finding] = {}

    def of_request(self, library: ctypes.CDLL, session: int, request_id: int, operation: str) -> Optional[Finding]:
        """Returns the finding of an operation that has just ended."""
        if self._on_finding is None:
            return None
        with self._lock:
            while True:
                struct = _library.Finding(struct_size=ctypes.sizeof(_library.Finding))
                if library.sluice_next_finding(session, ctypes.byref(struct)) != _library.OK:
                    break
                self._unclaimed[struct.request] = struct
                if len(self._unclaimed) > _MAX_UNCLAIMED:
                    del self._unclaimed[next(iter(self._unclaimed))]
            found = self._unclaimed.pop(request_id, None)
        if found is None:
            return None
        return Finding(found.rank, _KINDS.get(found.kind, f"kind {found.kind}"), found.count, found.ratio, operation)

    def error_for(self, finding: Optional[Finding]) -> Optional[UnhealthyGradient]:
        """Returns the error with which the operation of the finding ends, or None."""
        if finding is None or self._on_finding != "raise":
            return None
        error = UnhealthyGradient(str(finding))
        error.finding = finding
        return error

    def call(self, finding: Optional[Finding]) -> None:
        """Calls the caller's function."""
        if finding is not None and callable(self._on_finding):
            self._on_finding(finding)
