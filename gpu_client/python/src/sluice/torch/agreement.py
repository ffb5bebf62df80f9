"""The ranks of a group agree through its store, which may still have the keys of earlier attempts of the job: torchrun's share one store."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, NamedTuple

import torch.distributed as dist

_PROPOSAL = "sluice/proposal"
_LONGEST_LEAVE_S = 5.0
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.05, 1.0  # between looks for a newer proposal


class Agreement(NamedTuple):
    nonce: str  # of this attempt, in no key of an earlier one
    decision: Any


def agree(store: dist.Store, rank: int, ranks: int, announced: Any, decide: Callable[[list[Any]], Any], timeout: timedelta) -> Agreement:
    """Collective over the group. All ranks get what `decide` returns on rank 0 for the values that the ranks announce. Values are JSON's.

    Rank 0 proposes a nonce. The other ranks answer with nonces of their own, under keys of the proposal, and accept only a
    decision that repeats theirs: one of an earlier attempt does not, and its proposal is read again until rank 0 has replaced
    it. Nothing uses the store later: a thread that waits for a key holds the store's lock."""
    own = os.urandom(8).hex()
    deadline = time.monotonic() + timeout.total_seconds()
    if rank == 0:
        store.set(_PROPOSAL, own)
        answers = _answers(store, own, ranks, timeout)
        decision = decide([announced, *(value for _, value in answers)])
        store.set(_key(own, 0), json.dumps([[own, *(nonce for nonce, _ in answers)], decision]))
        return Agreement(own, decision)
    wait = _FIRST_WAIT_S
    while True:
        proposal = store.get(_PROPOSAL).decode()
        store.set(_key(proposal, rank), json.dumps([own, announced]))
        if _has(store, _key(proposal, 0), wait):
            nonces, decision = json.loads(store.get(_key(proposal, 0)))
            if nonces[rank:rank + 1] == [own]:
                return Agreement(proposal, decision)
            time.sleep(_FIRST_WAIT_S)
        if time.monotonic() >= deadline:
            raise dist.DistBackendError(f"backend sluice: rank 0 did not answer within {timeout.total_seconds():g} s; the store has the keys of "
                                        "an earlier attempt, or rank 0 waits for another rank")
        wait = min(2 * wait, _LONGEST_WAIT_S)


def leave(store: dist.Store, nonce: str, rank: int, ranks: int) -> None:
    """Collective over the ranks of a decision that nothing follows. Rank 0 waits a little for the others, because the store may end with it."""
    if rank != 0:
        store.set(f"{_key(nonce, rank)}/left", "")
    elif ranks > 1:
        with suppress(RuntimeError):
            store.wait([f"{_key(nonce, other)}/left" for other in range(1, ranks)], timedelta(seconds=_LONGEST_LEAVE_S))


def _key(proposal: str, rank: int) -> str:
    """Of a rank's answer to a proposal, or for rank 0 of the decision."""
    return f"sluice/{proposal}/{rank}"


def _answers(store: dist.Store, proposal: str, ranks: int, timeout: timedelta) -> list[Any]:
    keys = [_key(proposal, rank) for rank in range(1, ranks)]
    try:
        if keys:
            store.wait(keys, timeout)
    except RuntimeError as error:
        missing = ", ".join(str(rank) for rank, key in enumerate(keys, 1) if not store.check([key]))
        raise dist.DistBackendError(f"backend sluice: rank {missing} did not join the group within {timeout.total_seconds():g} s") from error
    return [json.loads(store.get(key)) for key in keys]


def _has(store: dist.Store, key: str, seconds: float) -> bool:
    """Waits for the key. Raises the error of a store that fails before the time is over."""
    begin = time.monotonic()
    try:
        store.wait([key], timedelta(seconds=seconds))
    except RuntimeError:
        if time.monotonic() - begin < 0.9 * seconds:
            raise
        return False
    return True
