"""usage: torch_streams_rank.py device: checks HostDevice, the device of collectives in stream order where there is no GPU."""

import faulthandler
import gc
import sys
import threading
import weakref

import sluice
import torch
from sluice.torch.device import STREAMED, CallingThread, HostDevice


def raised(call):
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def check_device():
    device = HostDevice(torch.device("cpu"))
    assert set(STREAMED) == {"cuda"}
    first, second = device.new_stream(), device.new_stream()
    gate, order = threading.Event(), []
    device.run(first, gate.wait)
    device.run(first, lambda: order.append("first"))
    device.follow(second, first)
    device.run(second, lambda: order.append("second"))
    event = device.record(second)
    kept = torch.ones(3)
    alive = weakref.ref(kept)
    device.keep(kept, second)
    del kept
    # Nothing above has waited.
    assert not event.query() and not order and alive() is not None
    assert isinstance(device.current_stream(), CallingThread)
    with device.use(second):
        assert device.current_stream() is second
    gate.set()
    device.wait(device.current_stream(), event)  # of this thread: blocks
    assert event.query() and order == ["first", "second"]
    second.synchronize()
    gc.collect()
    assert alive() is None
    assert device.future(first, 1) is None and not device.is_capturing()
    # What a stream cannot do is told to who uses it next, and does not stop it.
    device.run(first, lambda: 1 // 0)
    event = device.record(first)
    event.synchronize()
    for call in (first.synchronize, lambda: device.run(first, gate.wait)):
        assert raised(call).startswith("ZeroDivisionError"), raised(call)
    # A session stages host memory on such a stream, and the stream's later work finds the result.
    with sluice.Session("none", session_id=bytes(15) + b"s", rank=0, ranks=1, **device.session_options) as session:
        x = torch.zeros(100_000)
        device.run(second, lambda: x.fill_(3.0))
        session.allreduce_async(x, stream=device.handle(second))
        found = []
        device.run(second, lambda: found.append(x.sum().item()))
        second.synchronize()
        assert found == [300_000.0], found
        assert session.stream_stats().bytes_staged_out == 400_000
    handle = first.handle
    del first, session
    gc.collect()
    library = sluice._library.load()
    assert library.sluice_host_stream_synchronize(handle) == sluice._library.INVALID_ARGUMENT  # it has ended


def main():
    faulthandler.dump_traceback_later(100, exit=True)  # a hang shows where, before the test's deadline
    torch.set_num_threads(1)
    {"device": check_device}[sys.argv[1]]()


if __name__ == "__main__":
    main()
