"""Class SluiceGroup: a process group whose collectives of dense tensors run through reducers, and everything else through other backends."""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Optional, Union

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d  # has the options that torch.distributed does not export

from ..completions import CompletionThreads
from ..errors import Error
from ..residuals import Residuals, is_on
from ..session import Session
from . import offload
from .device import STREAMED
from .devices.alone import Alone
from .devices.arguments import check_results, first_tensor, listed
from .devices.composed_group import ComposedGroup, routed
from .devices.device_map import NAME, served
from .devices.streamed import StreamedCollectives
from .forked import keep_in_children
from .gather_session import GatherSession
from .group_session import GroupSessions, agree
from .offload import Operator, Place, Started, are_dense, operator_of
from .options import Options, inherit, options_of
from .rails.opening import open_streams
from .releases import abort_gloo, also_named, untraced
from .timeouts import UNSET, limit, of_call
from .work import SessionWork

_Tensors = Union[torch.Tensor, list[torch.Tensor]]
_MAX_RESIDUALS = 256


class SluiceGroup(ComposedGroup):
    """The thread rules are those of torch.distributed: the ranks call the collectives of a group in the same order.

    A subclass of ProcessGroup and not of Backend, because torch forwards only wait() and get_future() of the Work of a
    backend in Python: is_completed() would stay false."""

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: timedelta, group_options: Optional[Options] = None,
                 backends: Optional[dict[str, str]] = None, others: Any = None, ranks_in_job: Sequence[int] = (), **options: Any) -> None:
        """Collective. Raises DistBackendError if the group's session cannot be opened. `options`: of ProcessGroupGloo.

        `backends`: the device map, of which `others` runs what is not "sluice", see _compose(). None: all devices are the group's."""
        self._pid = os.getpid()
        self._session: Optional[Session] = None  # None for a single rank
        self._gathers: Optional[GatherSession] = None  # None without dedicated reducers: links have no spare bandwidth then
        self._sessions: Optional[GroupSessions] = None
        self._streams: Optional[StreamedCollectives] = None  # before the first tensor on a GPU
        self._no_streams: Optional[Exception] = None  # why it could not be opened
        self._opening = threading.Lock()
        self._store = store
        self._timeout = limit(timeout)
        self.group_options, self._ranks_in_job = group_options or Options(), ranks_in_job or range(size)  # their numbers there
        self._residuals: Optional[Residuals] = None  # without error feedback
        prefix, sessions, address = "", None, None
        if size > 1 and not options:
            prefix, sessions, address = agree(store, rank, size, self.group_options, timeout)
        super().__init__(store, rank, size, timeout, prefix, address, **options)
        keep_in_children(self._gloo)
        backends = backends or dict.fromkeys(served(), NAME)
        self._compose(backends, frozenset(kind for kind, name in backends.items() if name == NAME), others or {}, timeout)
        if sessions is not None:
            self._open_sessions(sessions._replace(ranks_in_job=ranks_in_job), timeout)

    def _open_sessions(self, sessions: GroupSessions, timeout: timedelta) -> None:
        self._sessions = sessions
        try:
            self._session = sessions.open(0, timeout)
        except Error as error:
            raise dist.DistBackendError(f"backend sluice: {error}") from error
        if is_on(self.group_options.error_feedback, self._session.wire_dtype):
            self._residuals = Residuals(limit=_MAX_RESIDUALS)
        if self._session.stats().reducers > 0:
            self._gathers = GatherSession(self._session, lambda reducers: sessions.open(2 if reducers == "none" else 1, timeout, reducers))
        self._completions = CompletionThreads("sluice-torch", self._session)

    def name(self) -> str:
        return "sluice"

    getBackendName = name  # the name under which torch's C++ calls it

    def session(self, device: torch.device = torch.device("cpu")) -> Optional[Session]:
        """Returns the session of the group for tensors on the device, for its counters, without that of large all-gathers. None for a single
        rank, and before the first collective on a GPU. Of GPUs whose hosts reduce first: of the shares, None for one host."""
        if device.type not in STREAMED:
            return self._session
        return None if self._streams is None else self._streams.counted

    def end_error_feedback(self) -> None:
        """For callers that reduce other tensors in the same memory, as FSDP does, so that memory does not tell a tensor."""
        self._residuals = None

    def serves(self, device: torch.device) -> bool:
        """Whether collectives of tensors on the device run through reducers, and not in another backend of the map."""
        return device.type in self._own

    def error(self) -> Optional[Exception]:
        """Returns the error with which a session of the group ended, or None."""
        if self._session is None:
            return None
        try:
            return next(filter(None, (each.error() for each in (self._session, self._gathers, self._streams) if each is not None)), None)
        except Error as error:  # the session is closed
            return error

    # Each collective has the forms that torch has: with options, or for one tensor with an operator or a root, and a timeout. The
    # names of arguments that torch has in some form only are those of also_named().

    @also_named(tensor="tensors")
    def allreduce(self, tensors: _Tensors, opts: Any = None, timeout: Optional[timedelta] = None, op: Any = None) -> dist.Work:
        opts = _options(c10d.AllreduceOptions, opts, timeout, reduceOp=opts if op is None else op)
        tensors = listed(tensors)
        operator = operator_of(opts.reduceOp, tensors)
        if operator is None or len(tensors) != 1:
            return self._gloo_work("allreduce", tensors, opts)
        feedbacks = self._feedbacks_of(tensors)
        return self._start("allreduce", opts, tensors, lambda place: offload.all_reduce(place, tensors, operator, feedbacks), tensors)

    def allreduce_coalesced(self, tensors: list[torch.Tensor], opts: Any = None) -> dist.Work:
        opts = _options(c10d.AllreduceCoalescedOptions, opts)
        operator = operator_of(opts.reduceOp, tensors)
        if operator is None:
            return self._gloo_work("allreduce_coalesced", tensors, opts)
        feedbacks = self._feedbacks_of(tensors)
        return self._start("allreduce_coalesced", opts, tensors, lambda place: offload.all_reduce(place, tensors, operator, feedbacks), tensors)

    @also_named(tensor="tensors", root="opts")
    def reduce(self, tensors: _Tensors, opts: Any = None, op: Any = None, timeout: Optional[timedelta] = None) -> dist.Work:
        opts = _options(c10d.ReduceOptions, opts, timeout, rootRank=opts, reduceOp=op)
        tensors = listed(tensors)
        operator = operator_of(opts.reduceOp, tensors)
        if operator is None or len(tensors) != 1 or not self._is_root(opts):
            return self._gloo_work("reduce", tensors, opts)
        return self._start("reduce", opts, tensors, lambda place: offload.reduce(place, tensors[0], operator, opts.rootRank), tensors)

    @also_named(tensor="tensors", root="opts")
    def broadcast(self, tensors: _Tensors, opts: Any = None, timeout: Optional[timedelta] = None) -> dist.Work:
        opts = _options(c10d.BroadcastOptions, opts, timeout, rootRank=opts)
        tensors = listed(tensors)
        if len(tensors) != 1 or not are_dense(tensors) or not self._is_root(opts):
            return self._gloo_work("broadcast", tensors, opts)
        return self._start("broadcast", opts, tensors, lambda place: offload.broadcast(place, tensors[0], opts.rootRank), tensors)

    @also_named(output_tensors="outputs", output="outputs", input_tensors="inputs", input_tensor="inputs", input="inputs", op="opts")
    def reduce_scatter(self, outputs: _Tensors, inputs: Any, opts: Any = None, timeout: Optional[timedelta] = None) -> dist.Work:
        opts = _options(c10d.ReduceScatterOptions, opts, timeout, reduceOp=opts)
        outputs = listed(outputs)
        lists = [inputs] if inputs and isinstance(inputs[0], torch.Tensor) else inputs
        if not all(self._match(parts, output) for output, parts in zip(outputs, lists)) or len(lists) != len(outputs) or not outputs:
            return self._gloo_work("reduce_scatter", outputs, lists, opts)
        operator = operator_of(opts.reduceOp, outputs)
        if operator is None:
            return self._gloo_work("reduce_scatter", outputs, lists, opts)
        pairs = list(zip(outputs, lists))
        return self._start("reduce_scatter", opts, outputs, lambda place: offload.reduce_scatter_lists(place, pairs, operator), outputs, lists)

    @also_named(outputTensor="output", inputTensor="whole", input="whole")
    def _reduce_scatter_base(self, output: torch.Tensor, whole: torch.Tensor, opts: Any = None) -> dist.Work:
        return self._scatter("_reduce_scatter_base", [output], [whole], opts, (output, whole))

    @also_named(outputTensor="output", inputTensor="whole", input="whole")
    def reduce_scatter_single(self, output: torch.Tensor, whole: torch.Tensor, opts: Any = None) -> dist.Work:
        return self._scatter("reduce_scatter_single", [output], [whole], opts, (output, whole))

    @also_named(outputTensors="outputs", inputTensors="inputs")
    def reduce_scatter_single_coalesced(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any = None) -> dist.Work:
        return self._scatter("reduce_scatter_single_coalesced", outputs, inputs, opts, (outputs, inputs))

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    @also_named(output_tensors="outputs", input_tensors="inputs", input_tensor="inputs")
    def allgather(self, outputs: Any, inputs: _Tensors, opts: Any = None, timeout: Optional[timedelta] = None) -> dist.Work:
        lists = [outputs] if outputs and isinstance(outputs[0], torch.Tensor) else outputs
        return self._gather_lists("allgather", lists, listed(inputs), _options(c10d.AllgatherOptions, opts, timeout))

    @also_named(output_lists="outputs", input_list="inputs")
    def allgather_coalesced(self, outputs: Any, inputs: list[torch.Tensor], opts: Any = None) -> dist.Work:
        """`outputs` has a list for each rank, with an output for each input."""
        opts = _options(c10d.AllgatherOptions, opts)
        by_input = list(map(list, zip(*outputs)))
        if any(len(of_rank) != len(inputs) for of_rank in outputs) or not all(self._match(parts, part) for parts, part in zip(by_input, inputs)):
            return self._gloo_work("allgather_coalesced", outputs, inputs, opts)
        return self._gather_lists("allgather_coalesced", by_input, inputs, opts)

    @also_named(input="part")
    def _allgather_base(self, output: torch.Tensor, part: torch.Tensor, opts: Any = None) -> dist.Work:
        return self._gather("_allgather_base", [output], [part], opts, (output, part))

    @also_named(input="part")
    def all_gather_single(self, output: torch.Tensor, part: torch.Tensor, opts: Any = None) -> dist.Work:
        return self._gather("all_gather_single", [output], [part], opts, (output, part))

    @also_named(output_lists="outputs", input_list="inputs")
    def all_gather_single_coalesced(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any = None) -> dist.Work:
        return self._gather("all_gather_single_coalesced", outputs, inputs, opts, (outputs, inputs))

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def barrier(self, opts: Any = None, timeout: Optional[timedelta] = None) -> dist.Work:
        """An allreduce, so that it fails with a reason if a rank calls another collective."""
        opts, nothing = _options(c10d.BarrierOptions, opts, timeout), [torch.zeros(1, dtype=torch.uint8)]
        others, device = self._others(), getattr(opts, "device", None)
        if others is not None and (device is None or device.type not in self._own) and torch.device("cpu" if device is None else device.type) in others._device_types:
            return others.barrier(opts)
        if self.size() == 1:
            return self._gloo_work("barrier", opts)
        if self._streams is not None:
            self._streams.finish()  # as NCCL's: what the ranks' streams have is done
        return self._start("barrier", opts, [], lambda place: offload.all_reduce(place, nothing, Operator("max")))

    def shutdown(self) -> None:
        """Leaves each session: waits until no other rank needs this one, at most for the linger time. May be called again.

        Aborts while Ctrl-C ends the program, because the other ranks then wait for operations that never come."""
        if isinstance(sys.exc_info()[1], KeyboardInterrupt):
            return self.abort()
        if os.getpid() != self._pid:
            return  # the connections are the parent's
        self._close()
        if (others := self._others()) is not None and hasattr(others, "shutdown"):
            others.shutdown()

    def abort(self) -> None:
        """Ends the group on all ranks: Work in progress raises an error, which names this rank unless gloo executes it. Any thread."""
        if os.getpid() != self._pid:
            return  # the connections are the parent's
        self._abort_sessions(f"rank {self.rank()} aborted the process group")
        abort_gloo(self._gloo)
        if (others := self._others()) is not None and hasattr(others, "abort"):
            others.abort()
        self._close()

    def _abort_sessions(self, reason: str) -> None:
        if self._session is not None:
            self._session.abort(reason)
            if self._gathers is not None:
                self._gathers.abort(reason)
            if self._streams is not None:
                self._streams.session.abort(reason)

    def _close(self) -> None:
        if self._gathers is not None:
            if self.error() is not None:  # a gather that other ranks do not call would not end
                self._gathers.abort("the group's first session has failed")
            self._gathers.close()
        if self._streams is not None:
            with suppress(Error):
                self._streams.session.close()
        if self._session is not None:
            with suppress(Error):  # the operations of a failed session have raised its error
                self._session.close()

    def split_group(self, ranks: Sequence[int], timeout: Optional[timedelta] = None, opts: Any = None, group_name: Optional[str] = None,
                    group_desc: Optional[str] = None, device_types: Any = None) -> Any:
        """Collective over `ranks`, numbers in this group. Returns their group, or None on other ranks. torch.distributed.split_group calls it."""
        if timeout is not None:
            limit(timeout)  # raises
        if self.rank() not in ranks:
            return None
        name = group_name or f"{self.group_name}:split:{'_'.join(map(str, ranks))}"
        chosen = {kind: backend for kind, backend in self._map.items() if device_types is None or kind in {each.type for each in device_types}}
        others: Any = None
        if rest := [torch.device(kind) for kind in chosen if kind not in self._own]:
            others = self._rest.split_group(list(ranks), timeout=timeout, group_name=name, group_desc=group_desc, device_types=rest)
            if not self._own & chosen.keys():
                return others
        options = options_of(opts)
        options = self.group_options if options is None else inherit(options, self.group_options)
        group = SluiceGroup(dist.PrefixStore(f"{name}/", self._store), list(ranks).index(self.rank()), len(ranks), timeout or self._timeout, options,
                            chosen, others, [self._ranks_in_job[rank] for rank in ranks])
        group._set_group_name(name)
        group._set_group_desc(group_desc or f"{self.group_desc}:split")
        return group

    def set_timeout(self, timeout: timedelta) -> None:
        """For later calls. The session keeps its limit, the timeout with which the group was made."""
        self._timeout = limit(timeout)
        super().set_timeout(timeout)
        if (others := self._others()) is not None and hasattr(others, "set_timeout"):
            others.set_timeout(timeout)

    def _feedbacks_of(self, tensors: Sequence[torch.Tensor], kind: str = "reduce") -> list[Optional[offload.Feedback]]:
        """Error feedback of each tensor that the session rounds, or None; a tensor is known by its memory and the kind of operation."""
        residuals = self._residuals
        if residuals is None:
            return []
        return [functools.partial(residuals.of, (kind, each.data_ptr(), each.numel()))
                if each.dtype == torch.float32 and each.numel() >= self.group_options.wire_min_count and each.is_contiguous() else None for each in tensors]

    def _is_root(self, opts: Any) -> bool:
        """Whether the root is a rank, and its tensor the only one. gloo raises its error for another one."""
        return bool(0 <= opts.rootRank < self.size() and opts.rootTensor == 0)

    def _match(self, parts: Sequence[torch.Tensor], part: torch.Tensor) -> bool:
        """Whether `parts` has a dense tensor like `part` for each rank. gloo raises its error for other tensors."""
        return len(parts) == self.size() and are_dense([*parts, part]) and all(p.shape == part.shape and p.dtype == part.dtype for p in parts)

    def _divide(self, wholes: Sequence[torch.Tensor], parts: Sequence[torch.Tensor]) -> bool:
        """Whether each of the dense `wholes` has a part like the one in `parts` for each rank."""
        return 0 < len(wholes) == len(parts) and are_dense([*wholes, *parts]) and all(
            whole.numel() == self.size() * part.numel() and whole.dtype == part.dtype for whole, part in zip(wholes, parts))

    def _scatter(self, name: str, outputs: list[torch.Tensor], wholes: list[torch.Tensor], opts: Any, arguments: tuple[Any, ...]) -> dist.Work:
        opts = _options(c10d.ReduceScatterOptions, opts)
        operator = operator_of(opts.reduceOp, wholes) if self._divide(wholes, outputs) else None
        if operator is None:
            return self._gloo_work(name, *arguments, opts)
        pairs, feedbacks = list(zip(outputs, wholes)), self._feedbacks_of(wholes, "scatter") if self.group_options.error_feedback else []
        return self._start(name, opts, outputs, lambda place: offload.reduce_scatter(place, pairs, operator, feedbacks), *arguments)

    def _gather(self, name: str, outputs: list[torch.Tensor], parts: list[torch.Tensor], opts: Any, arguments: tuple[Any, ...]) -> dist.Work:
        opts = _options(c10d.AllgatherOptions, opts)
        if not self._divide(outputs, parts):
            return self._gloo_work(name, *arguments, opts)
        pairs = list(zip(outputs, parts))
        return self._start(name, opts, outputs, lambda place: offload.all_gather(place, pairs, self._gatherer(place, outputs)), *arguments)

    def _gather_lists(self, name: str, lists: Sequence[Sequence[torch.Tensor]], parts: list[torch.Tensor], opts: Any) -> dist.Work:
        if len(lists) != len(parts) or not parts or not are_dense(parts) or not all(self._match(outputs, part) for outputs, part in zip(lists, parts)):
            return self._gloo_work(name, lists, parts, opts)
        arguments = (list(map(list, zip(*lists))) if name == "allgather_coalesced" else lists, parts)
        pairs = list(zip(lists, parts))
        results = [output for outputs in lists for output in outputs]
        return self._start(name, opts, results, lambda place: offload.all_gather_lists(place, pairs, self._gatherer(place, results)), *arguments)

    def _gatherer(self, place: Place, outputs: Sequence[torch.Tensor]) -> Optional[offload.Gatherer]:
        """The same on all ranks, whose outputs have equal sizes. None: the session of the place."""
        is_large = sum(output.numel() * output.element_size() for output in outputs) >= GatherSession.LEAST_BYTES
        return self._gathers if is_large and place.session is self._session else None

    def _streams_of(self, device: torch.device) -> StreamedCollectives:
        """Returns the collectives of a device with streams. Collective at the first call, which opens their session; blocks until all ranks have called.

        Raises ValueError for another device than that of the first call, as a process has one GPU."""
        if self._sessions is None or self._session is None:
            raise dist.DistBackendError("the process group has no session; call reconfigure() first, again if it failed")
        with self._opening:
            if self._streams is None and self._no_streams is None:
                try:
                    self._streams = open_streams(self._sessions, STREAMED[device.type](device), self._session, self._timeout)
                except (Error, RuntimeError) as error:  # torch's own errors too, without a GPU
                    text = (f"backend sluice: cannot run collectives of tensors on {device}: {error}; name another backend for them, such as "
                            f"'cpu:sluice,{device.type}:nccl', or use a libsluice with CUDA and a GPU")
                    self._no_streams = error if isinstance(error, dist.DistBackendError) else dist.DistBackendError(text)
        if self._streams is None:
            raise self._no_streams or dist.DistBackendError("the process group is closed")
        if device != self._streams.device.device:
            raise ValueError(f"backend sluice: the tensors are on {device}, but the group uses {self._streams.device.device} since its first collective; use one "
                             "GPU per process, chosen by torch.cuda.set_device()")
        return self._streams

    def _start(self, name: str, opts: Any, results: list[torch.Tensor], start: Callable[[Place], Started], *arguments: Any) -> dist.Work:
        """Starts an operation of the session. A single rank has no session."""
        self._check_process()
        check_results(name, results)
        timeout = of_call(opts.timeout)
        tensor = first_tensor(arguments)
        if self.size() == 1:
            return self._gloo_work(name, *arguments, opts) if tensor is None else Alone(tensor.device).start(start, results)
        if self._session is None:
            raise dist.DistBackendError("the process group has no session; call reconfigure() first, again if it failed")
        try:
            if tensor is not None and tensor.device.type in STREAMED:
                return self._streams_of(tensor.device).start(name, start, results)
            started = start(Place(self._session))
        except Error as error:
            raise dist.DistBackendError(str(error)) from error
        return SessionWork(started, results, self._timeout if timeout == UNSET else timeout, self._completions)


def _options(kind: Any, opts: Any, timeout: Optional[timedelta] = None, **fields: Any) -> Any:
    """Returns `opts`, or options of `kind` with the fields that are not None if `opts` is another argument of a short form."""
    if isinstance(opts, kind):
        return opts
    made = kind()
    if isinstance(opts, timedelta):
        timeout = opts
    elif opts is not None and all(value is not opts for value in fields.values()):
        raise TypeError(f"got {opts!r}; expected {kind.__name__} or a timeout, a datetime.timedelta")
    if timeout is not None:
        of_call(timeout)  # raises
    for name, value in {**fields, "timeout": timeout}.items():
        if value is not None:
            setattr(made, name, value)
    return made


routed(SluiceGroup)
untraced(SluiceGroup)
