"""A rank with arrays and streams like those of CuPy, on the GPU of the CUDA stand-in (SLUICE_CUDA_DRIVER)."""

import ctypes
import os

import numpy
from package_test_bed import session_of_environment

COUNT = 300_001
driver = ctypes.CDLL(os.environ["SLUICE_CUDA_DRIVER"])


def call(name, *arguments):
    result = getattr(driver, name)(*arguments)
    assert result == 0, f"{name}: {result}"


class Device:
    def __init__(self, ordinal):
        self.id = ordinal


class Stream:
    def __init__(self):
        handle = ctypes.c_void_p()
        call("cuStreamCreate", ctypes.byref(handle), 1)
        self.ptr = handle.value


class GpuArray:
    """An array of float32 on GPU 0."""

    def __init__(self, values, stream):
        self.device, self.count, self.stream = Device(0), len(values), stream
        at = ctypes.c_uint64()
        call("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(values.nbytes))
        self.at = at.value
        self.values = values  # kept until the stream has copied them
        call("cuMemcpyHtoDAsync_v2", at, ctypes.c_void_p(values.ctypes.data), ctypes.c_size_t(values.nbytes), ctypes.c_void_p(stream.ptr))

    @property
    def __cuda_array_interface__(self):
        return {"shape": (self.count,), "typestr": "<f4", "data": (self.at, False), "version": 3, "strides": None}

    def read(self):
        """Returns the values after the stream's earlier work."""
        values = numpy.empty(self.count, dtype="float32")
        call("cuMemcpyDtoHAsync_v2", ctypes.c_void_p(values.ctypes.data), ctypes.c_uint64(self.at), ctypes.c_size_t(values.nbytes),
             ctypes.c_void_p(self.stream.ptr))
        call("cuStreamSynchronize", ctypes.c_void_p(self.stream.ptr))
        return values


call("cuInit", 0)
context = ctypes.c_void_p()
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxPushCurrent_v2", context)
with session_of_environment(device="cuda:0", wire_dtype="bf16", measure_error=True) as session:
    stream = Stream()
    mine = numpy.arange(COUNT, dtype="float32") % 256 + session.rank  # sums are integers that bf16 can represent almost exactly
    array = GpuArray(mine, stream)
    session.allreduce_async(array, "avg", stream=stream)  # only the stream waits for it
    total = sum((numpy.arange(COUNT, dtype="float64") % 256 + rank) for rank in range(session.ranks))
    numpy.testing.assert_allclose(array.read(), total / session.ranks, rtol=2.0**-7)
    maximum = GpuArray(mine, stream)
    assert session.allreduce(maximum, "max", stream=stream) is maximum
    numpy.testing.assert_array_equal(maximum.read(), numpy.arange(COUNT) % 256 + session.ranks - 1)
    # Sharded training: the parts differ in length by one element.
    counts = [COUNT // session.ranks + (rank < COUNT % session.ranks) for rank in range(session.ranks)]
    part, gathered = (GpuArray(numpy.zeros(count, dtype="float32"), stream) for count in (counts[session.rank], COUNT))
    session.reduce_scatter_async(GpuArray(mine, stream), part, "avg", counts=counts, stream=stream)
    session.all_gather_async(part, gathered, counts=counts, stream=stream)
    numpy.testing.assert_allclose(gathered.read(), total / session.ranks, rtol=2.0**-7)
    with session.group() as group:
        session.broadcast_async(gathered, root=1, stream=stream)
        session.reduce_async(maximum, "max", root=0, stream=stream)
    group.wait()
    numpy.testing.assert_allclose(gathered.read(), total / session.ranks, rtol=2.0**-7)
    numpy.testing.assert_array_equal(maximum.read(), numpy.arange(COUNT) % 256 + session.ranks - 1)
    try:
        session.allreduce(numpy.ones(3, dtype="float32"), stream=object())
    except TypeError as error:
        assert "stream is a object" in str(error), error
    else:
        raise AssertionError("an invalid stream was accepted")
    stats = session.stream_stats()
    print(session.rank, stats.operations, stats.elements_cast, stats.bytes_staged_out)
