"""Arrays of numpy, and of others that say where their memory is."""

import unittest

import numpy
import reference
from package_bed import PackageTest, main, open_session


class Exported:
    """An array that is known by DLPack alone, as those of frameworks are that this package has never heard of."""

    def __init__(self, array, versioned):
        self._array = array
        self._versioned = versioned

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()

    def __dlpack__(self, **how):
        if "max_version" in how and not self._versioned:
            raise TypeError("an exporter of before DLPack 1.0")
        return self._array.__dlpack__(**how)


class Pointed:
    def __init__(self, **interface):
        self.__array_interface__ = {"version": 3, **interface}


class Arrays(PackageTest):
    def setUp(self):
        super().setUp()
        self.address = self.start_reducer()[1]

    def session(self, **options):
        session = open_session(self.address, **options)
        self.addCleanup(session.close)
        return session

    def test_every_type_by_every_operation_has_the_bits_of_numpy(self):
        second = self.start_reducer()[1]
        for ranks in (2, 3):
            kinds = len(reference.DTYPES) * len(reference.OPS)
            self.assertEqual(self.run_ranks("reduce_rank.py", ranks, f"{self.address},{second}"),
                             [f"{rank} {kinds} {2 * kinds}\n" for rank in range(ranks)])

    def test_dlpack_of_either_age_is_read_and_written_in_place(self):
        session = self.session()
        for versioned in (True, False):
            memory = numpy.arange(6, dtype="float32").reshape(2, 3)
            out = numpy.zeros((2, 3), dtype="float32")
            given = Exported(out, versioned)
            self.assertIs(session.allreduce(Exported(memory, versioned), out=given), given)
            numpy.testing.assert_array_equal(out, memory)

    def test_dlpack_that_is_read_only_is_not_written(self):
        session = self.session()
        memory = numpy.ones(3, dtype="float32")
        memory.flags.writeable = False
        with self.assertRaisesRegex(ValueError, "x is read-only.*out="):
            session.allreduce(Exported(memory, True))
        out = numpy.zeros(3, dtype="float32")
        session.allreduce(Exported(memory, True), out=out)
        self.assertEqual(out.tolist(), [1, 1, 1])

    def test_shapes_without_elements_and_without_dimensions(self):
        session = self.session()
        empty = numpy.zeros((0, 4), dtype="int32")
        self.assertIs(session.allreduce(empty), empty)
        scalar = numpy.array(7.5)
        self.assertEqual(session.allreduce(scalar).item(), 7.5)
        column = numpy.ones((5, 1), dtype="float32")[:, ::-1]  # whatever its strides say, it is dense
        self.assertEqual(session.allreduce(column).sum(), 5)

    def test_an_array_interface_without_numpy(self):
        memory = numpy.full(4, 3, dtype="int64")
        array = Pointed(shape=(4,), typestr="<i8", data=(memory.ctypes.data, False))
        self.assertIs(self.session().allreduce(array, "max"), array)

    def test_arrays_live_as_long_as_their_operation(self):
        session = self.session()
        requests = [session.allreduce_async(numpy.full(100_000, i, dtype="float32")) for i in range(20)]  # nobody else has them
        for i, request in enumerate(requests):
            self.assertEqual(request.wait()[-1], i)
            self.assertEqual(request._buffers, [])
        # Requests that nobody keeps let go of theirs too.
        for _ in range(500):
            session.allreduce_async(numpy.ones(8, dtype="float32"))
        session.allreduce(numpy.ones(8, dtype="float32"))
        session.allreduce(numpy.ones(8, dtype="float32"))
        self.assertEqual(session._open, {})


if __name__ == "__main__":
    main()
