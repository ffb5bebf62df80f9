"""Arrays of NumPy and of other libraries, by the array interface and DLPack."""

import unittest

import numpy
import reference
from package_test_bed import ReducerTest, main


class Exported:
    """An array that supports only DLPack, as one of an unknown framework."""

    def __init__(self, array, versioned):
        self._array = array
        self._versioned = versioned

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()

    def __dlpack__(self, **options):
        if "max_version" in options and not self._versioned:
            raise TypeError("max_version is unknown before DLPack 1.0")
        return self._array.__dlpack__(**options)


class ArrayInterface:
    """An object with only an __array_interface__."""

    def __init__(self, **interface):
        self.__array_interface__ = {"version": 3, **interface}


class Arrays(ReducerTest):
    def test_every_type_and_operator_has_the_bits_of_numpy(self):
        second = self.start_reducer()[1]
        for ranks in (2, 3):
            kinds = len(reference.DTYPES) * len(reference.OPS)
            self.assertEqual(self.run_ranks("reduce_rank.py", ranks, f"{self.address},{second}"),
                             [f"{rank} {kinds} {2 * kinds}\n" for rank in range(ranks)])

    def test_dlpack_of_both_versions_is_read_and_written_in_place(self):
        session = self.session()
        for versioned in (True, False):
            memory = numpy.arange(6, dtype="float32").reshape(2, 3)
            out = numpy.zeros((2, 3), dtype="float32")
            exported = Exported(out, versioned)
            self.assertIs(session.allreduce(Exported(memory, versioned), out=exported), exported)
            numpy.testing.assert_array_equal(out, memory)

    def test_read_only_dlpack_memory_is_not_written(self):
        session = self.session()
        memory = numpy.ones(3, dtype="float32")
        memory.flags.writeable = False
        with self.assertRaisesRegex(ValueError, "x is read-only.*out="):
            session.allreduce(Exported(memory, True))
        out = numpy.zeros(3, dtype="float32")
        session.allreduce(Exported(memory, True), out=out)
        self.assertEqual(out.tolist(), [1, 1, 1])

    def test_empty_and_zero_dimensional_arrays(self):
        session = self.session()
        empty = numpy.zeros((0, 4), dtype="int32")
        self.assertIs(session.allreduce(empty), empty)
        scalar = numpy.array(7.5)
        self.assertEqual(session.allreduce(scalar).item(), 7.5)
        column = numpy.ones((5, 1), dtype="float32")[:, ::-1]  # contiguous despite its strides
        self.assertEqual(session.allreduce(column).sum(), 5)

    def test_an_array_interface_without_numpy(self):
        memory = numpy.full(4, 3, dtype="int64")
        array = ArrayInterface(shape=(4,), typestr="<i8", data=(memory.ctypes.data, False))
        self.assertIs(self.session().allreduce(array, "max"), array)

    def test_arrays_are_kept_alive_until_the_operation_ends(self):
        session = self.session()
        requests = [session.allreduce_async(numpy.full(100_000, i, dtype="float32")) for i in range(20)]  # no other references
        for i, request in enumerate(requests):
            self.assertEqual(request.wait()[-1], i)
            self.assertEqual(request._buffers, [])
        # Dropped requests release their arrays too.
        for _ in range(500):
            session.allreduce_async(numpy.ones(8, dtype="float32"))
        session.allreduce(numpy.ones(8, dtype="float32"))
        session.allreduce(numpy.ones(8, dtype="float32"))
        self.assertEqual(session._open, {})


if __name__ == "__main__":
    main()
